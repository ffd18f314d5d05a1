"""How many calls a second are allowed: a token bucket in its GCRA form, whose whole state is one number.

The number is `full_at`: the time at which the bucket is full again. A call moves it one token's worth into the future;
a call that would move it further than a whole bucket is refused and moves nothing. Whatever the times of the calls,
no window of T seconds sees more than rate × T + burst of them.
"""

import msgspec

BURST_SECONDS = 2  # the default bucket holds two seconds of calls (specification 8)

# A bucket is full burst / rate from now at the latest. A `full_at` beyond that and this much more was written by a
# clock that has since been set back. It is read as a bucket with one token left, whose taking writes a true `full_at`;
# without this the tenant would wait for the old time to come again.
CLOCK_STEP_SECONDS = 60.0

# Of one token. Twenty times 0.1 s adds up to a little over 2 s, and the twentieth call must still pass.
ROUNDING = 1e-4


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """What one call found in its bucket: how many more would pass now, and in how many seconds it is full again.

    `limit` is the agreed calls a second. The bucket holds more than one second of them, so `remaining` may exceed it.
    `retry_after_seconds` is 0 for a call that was allowed.
    """

    allowed: bool
    limit: int
    remaining: int
    reset_seconds: float
    retry_after_seconds: float


def spend(full_at: float, now: float, rate: float, burst: float) -> float | None:
    """Take one token: the bucket's next `full_at`, or None when it holds none. Times are seconds from any origin."""
    debt = debt_seconds(full_at, now, rate, burst)
    if debt * rate + 1.0 > burst + ROUNDING:
        return None
    return now + debt + 1.0 / rate


def debt_seconds(full_at: float, now: float, rate: float, burst: float) -> float:
    """How long until the bucket is full again; 0 when it is, however long ago that was."""
    debt = full_at - now
    if debt <= 0.0:
        return 0.0
    return (burst - 1.0) / rate if debt > burst / rate + CLOCK_STEP_SECONDS else debt


def wait_seconds(full_at: float, now: float, rate: float, burst: float) -> float:
    """How long until the bucket holds a token; 0 when it holds one."""
    lacking = debt_seconds(full_at, now, rate, burst) + (1.0 - burst) / rate
    return lacking if lacking * rate > ROUNDING else 0.0


def allowed(debt: float, rate: float, burst: float, limit: int) -> Allowance:
    """The allowance of a call that passed and left the bucket `debt` seconds from full."""
    return Allowance(True, limit, int(burst - debt * rate + ROUNDING), debt, 0.0)


def refused(debt: float, rate: float, burst: float, limit: int) -> Allowance:
    """The allowance of a call that found no token in a bucket `debt` seconds from full."""
    return Allowance(False, limit, 0, debt, debt + (1.0 - burst) / rate)
