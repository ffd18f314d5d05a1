"""May this call in? Each request id once, each tenant its calls a second, each address its failed authentications.

One process keeps all three in memory. Several processes share request ids and QPS through Valkey (or Redis); when that
is lost they fall back to memory, and no call fails or waits for it. Times are seconds on any clock that does not
jump, `time.monotonic()` for one; the same clock for every call.
"""

import asyncio
import contextlib
import struct
from array import array
from collections.abc import Sequence
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Any, NamedTuple

import msgspec
import structlog
from valkey.asyncio import Valkey
from valkey.asyncio.retry import Retry
from valkey.backoff import NoBackoff
from valkey.exceptions import ValkeyError

from dealer_server.api.written_ids import OwnIds, WrittenIds
from dealer_server.db.errors import DatabaseLost
from dealer_server.rules.access import rate_limit
from dealer_server.rules.access.rate_limit import Allowance

REQUEST_ID_SECONDS = 660  # eleven minutes (decisions 1)
OTHERS_BACK_SECONDS = 10.0  # within which all processes have found a Valkey that is back

log = structlog.get_logger(__name__)


class Admission(msgspec.Struct, frozen=True, gc=False):
    """`fresh` is False for a request id used before. `allowance` is None where none applies: a reused id, or QPS 0."""

    fresh: bool
    allowance: Allowance | None


REUSED = Admission(False, None)
UNLIMITED = Admission(True, None)


class UsedRequestIds:
    """The request ids of the last eleven minutes, about 17 bytes each, found in about a microsecond.

    Open addressing in `array('Q')`: an entry is 54 bits of a keyed hash and, in the low 10 bits, the tick at which it
    was stored. The hash is Python's own, keyed afresh in every process, so nobody outside can aim for a collision. Its
    low bits choose the shard: the entries keep what the shard does not tell. A table is rebuilt whole, when it is full
    or its turn has come; there are many shards so that this pauses the process for a millisecond and not for a hundred.
    A rebuild drops what has expired; until then an expired entry takes room and nothing else.
    """

    SHARDS = 1024
    TICK_SECONDS = 10
    LIFE_TICKS = REQUEST_ID_SECONDS // TICK_SECONDS
    CODES = 1023  # ticks are stored modulo this, plus one: an entry is never 0, and 0 is a free slot
    TURNS_PER_TICK = 2  # every shard is rebuilt before the code of its oldest entry could come round again
    LEAST_SLOTS = 32

    def __init__(self) -> None:
        self._tick = 0
        self._code = 1
        self._next_turn = 0
        # Tables of one age fill up together. Different thresholds keep them from being rebuilt together.
        self._fullest = [0.55 + 0.2 * shard / self.SHARDS for shard in range(self.SHARDS)]
        self._clear()

    def use(self, app_key: str, request_id: str, now_seconds: float) -> bool:
        """Record the id. False when this AppKey has used it within eleven minutes."""
        tick = int(now_seconds) // self.TICK_SECONDS
        if tick > self._tick:
            self._advance(tick)
        hashed = hash((app_key, request_id))  # 1023 below: the shard's bits, and in an entry the tick's
        shard = hashed & 1023
        lowest = hashed & 0xFFFF_FFFF_FFFF_FC00
        highest = lowest | 1023
        table = self._tables[shard]
        mask = len(table) - 1
        slot = (hashed >> 10) & mask
        while entry := table[slot]:
            if lowest < entry <= highest:
                if not self._expired(entry):
                    return False
                table[slot] = lowest | self._code
                return True
            slot = (slot + 1) & mask
        table[slot] = lowest | self._code
        self._room[shard] -= 1
        if not self._room[shard]:
            self._rebuild(shard)
        return True

    def memory_bytes(self) -> int:
        """What the tables take, for the metrics."""
        return sum(table.itemsize * len(table) for table in self._tables)

    def _expired(self, entry: int) -> bool:
        return (self._code - (entry & 1023)) % self.CODES > self.LIFE_TICKS

    def _advance(self, tick: int) -> None:
        """Time has reached a new tick (it never goes back here): give the next shards their turn."""
        ticks = tick - self._tick
        self._tick = tick
        self._code = tick % self.CODES + 1
        if ticks > self.LIFE_TICKS:  # everything has expired; reading it all would be one long pause
            self._clear()
            return
        for _ in range(ticks * self.TURNS_PER_TICK):
            self._rebuild(self._next_turn)
            self._next_turn = (self._next_turn + 1) % self.SHARDS

    def _clear(self) -> None:
        self._tables = [array("Q", bytes(8 * self.LEAST_SLOTS)) for _ in range(self.SHARDS)]
        self._room = [int(self.LEAST_SLOTS * fullest) for fullest in self._fullest]

    def _rebuild(self, shard: int) -> None:
        """Move the living entries of a shard to a table of which they fill a quarter to a half."""
        code, codes, life = self._code, self.CODES, self.LIFE_TICKS
        living = [entry for entry in self._tables[shard] if entry and (code - (entry & 1023)) % codes <= life]
        slots = self.LEAST_SLOTS
        while slots < 2 * len(living):
            slots *= 2
        table = array("Q", bytes(8 * slots))
        mask = slots - 1
        for entry in living:
            slot = (entry >> 10) & mask
            while table[slot]:
                slot = (slot + 1) & mask
            table[slot] = entry
        self._tables[shard] = table
        self._room[shard] = int(slots * self._fullest[shard]) - len(living)


class FailedAuthentications:
    """The bucket of failed authentications of each client address.

    An IPv6 client owns its whole /64 and may fail from another address of it each time, so a /64 counts as one client.
    A bucket that is full again tells nothing and is dropped: what is kept are the clients that failed in the last
    `burst / rate` seconds, at most twice.
    """

    LEAST_PRUNED = 4096

    def __init__(self, rate_per_second: float, burst: int) -> None:
        self._rate = rate_per_second
        self._burst = burst
        self._full_at: dict[str | bytes, float] = {}
        self._prune_at = self.LEAST_PRUNED

    def __len__(self) -> int:
        return len(self._full_at)

    def record(self, ip: str, now: float) -> None:
        """One more failure. What goes beyond an empty bucket is not counted: nobody is blocked for longer than that."""
        client = client_network(ip)
        full_at = rate_limit.spend(self._full_at.get(client, 0.0), now, self._rate, self._burst)
        if full_at is None:
            return
        self._full_at[client] = full_at
        if len(self._full_at) >= self._prune_at:
            self._prune(now)

    def wait_seconds(self, ip: str, now: float) -> float:
        """How long this client has to wait before it may try again; 0 for nearly everyone."""
        if not self._full_at:  # the usual case, and it saves reading an IPv6 address
            return 0.0
        full_at = self._full_at.get(client_network(ip))
        return 0.0 if full_at is None else rate_limit.wait_seconds(full_at, now, self._rate, self._burst)

    def _prune(self, now: float) -> None:
        self._full_at = {client: full_at for client, full_at in self._full_at.items() if full_at > now}
        self._prune_at = max(self.LEAST_PRUNED, 2 * len(self._full_at))


MAPPED_IPV4 = bytes(10) + b"\xff\xff"


def client_network(ip: str) -> str | bytes:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in ip:
        return ip
    try:
        packed = inet_pton(AF_INET6, ip.partition("%")[0])
    except OSError:
        return ip
    return inet_ntop(AF_INET, packed[12:]) if packed.startswith(MAPPED_IPV4) else packed[:8]


class LocalAdmission:
    """Admission in the memory of this process, which may give away `share` of each tenant's QPS."""

    shared = False
    degraded = False

    def __init__(self, *, share: float = 1.0, failures_per_second: float = 50, failures_burst: int = 200) -> None:
        self._share = share
        self._used = UsedRequestIds()
        self._full_at: dict[int, float] = {}
        self._failures = FailedAuthentications(failures_per_second, failures_burst)
        # Not wrapped: every call asks, and a wrapper costs as much as some of these.
        self.use_request_id = self._used.use
        self.failed_authentication = self._failures.record
        self.authentication_blocked = self._failures.wait_seconds

    def admit(
        self,
        app_key: str,
        request_id: str,
        tenant_id: int,
        qps: int,
        now: float,
        wall: float | None = None,
        writes: bool = False,
    ) -> Admission:
        """The request id first, and only when it is fresh a token of the tenant. The id stays used either way.

        Ids age by `wall`, the clock their timestamps are checked against, so that setting it back opens no replay.
        """
        if not self._used.use(app_key, request_id, now if wall is None else wall):
            return REUSED
        return Admission(True, self.take(tenant_id, qps, now)) if qps else UNLIMITED

    def take(self, tenant_id: int, qps: int, now: float) -> Allowance | None:
        """Take one of the tenant's calls of this second. None when it has no limit (qps 0)."""
        if not qps:
            return None
        own_rate = qps * self._share
        burst = max(own_rate * rate_limit.BURST_SECONDS, 1.0)
        before = self._full_at.get(tenant_id, 0.0)
        full_at = rate_limit.spend(before, now, own_rate, burst)
        if full_at is None:
            return rate_limit.refused(rate_limit.debt_seconds(before, now, own_rate, burst), own_rate, burst, qps)
        self._full_at[tenant_id] = full_at
        return rate_limit.allowed(full_at - now, own_rate, burst, qps)


# One run admits many calls: KEYS are a request id and a bucket for each, ARGV its QPS. Answers nine bytes a call:
# -1 reused, 0 refused, 1 allowed, then how many seconds the bucket is from full. See rules/access/rate_limit.py.
# The server's clock counts, so that all processes agree; from an origin near enough for doubles to keep microseconds.
ADMIT_SCRIPT = f"""
local time = redis.call('TIME')
local now = (time[1] - 1700000000) + time[2] / 1000000
local full_at, answers = {{}}, {{}}
for i = 1, #KEYS, 2 do
  local bucket, qps = KEYS[i + 1], tonumber(ARGV[(i + 1) / 2])
  local decision, debt = 1, 0
  if not redis.call('SET', KEYS[i], '', 'NX', 'PX', {REQUEST_ID_SECONDS * 1000}) then
    decision = -1
  elseif qps > 0 then
    debt = (full_at[bucket] or tonumber(redis.call('GET', bucket) or '0')) - now
    if debt < 0 then debt = 0 end
    if debt > {rate_limit.BURST_SECONDS + rate_limit.CLOCK_STEP_SECONDS} then
      debt = {rate_limit.BURST_SECONDS} - 1 / qps
    end
    if debt * qps + 1 > {rate_limit.BURST_SECONDS} * qps + {rate_limit.ROUNDING} then
      decision = 0
    else
      debt = debt + 1 / qps
    end
    full_at[bucket] = now + debt
  end
  answers[#answers + 1] = struct.pack('<bd', decision, debt)
end
for bucket, time in pairs(full_at) do
  redis.call('SET', bucket, string.format('%.9f', time), 'PX', math.ceil((time - now) * 1000) + 1000)
end
return table.concat(answers)
"""
ANSWER = struct.Struct("<bd")


class Call(NamedTuple):
    """One call that waits for Valkey's answer."""

    app_key: str
    request_id: str
    tenant_id: int
    qps: int
    now: float
    admission: asyncio.Future[Admission]


class SharedAdmission:
    """Admission shared by several processes through Valkey, by one script and at most one round trip a call.

    Calls that arrive during a round trip share the next one. Valkey lost: this process decides alone, by its own memory
    of request ids and with its share of each tenant's QPS, until a probe succeeds. Every id is remembered here as well,
    also while Valkey is there, so that its loss lets nothing in twice.

    Calls that change something are taken once by all processes then too: their ids go to PostgreSQL (`written`), those
    of the last eleven minutes first, and from there into Valkey before it is trusted again.
    """

    shared = True
    CALLS_PER_ROUND_TRIP = 256

    def __init__(
        self,
        url: str,
        *,
        share: float,
        key_prefix: str = "dealer:",
        timeout_seconds: float = 0.2,
        probe_seconds: float = 1.0,
        failures_per_second: float = 50,
        failures_burst: int = 200,
        written: WrittenIds | None = None,
    ) -> None:
        self._written = written
        self._own = OwnIds()
        self._settling: asyncio.Task[None] | None = None
        self._valkey: Any = Valkey.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )
        self._timeout_seconds = timeout_seconds
        self._probe_seconds = probe_seconds
        self._request_keys = key_prefix + "request:"
        self._bucket_keys = key_prefix + "qps:"
        self._alone = LocalAdmission(
            share=share, failures_per_second=failures_per_second, failures_burst=failures_burst
        )
        self._waiting: list[Call] = []
        self._lane: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self.degraded = False
        self.failed_authentication = self._alone.failed_authentication
        self.authentication_blocked = self._alone.authentication_blocked

    async def admit(
        self,
        app_key: str,
        request_id: str,
        tenant_id: int,
        qps: int,
        now: float,
        wall: float | None = None,
        writes: bool = False,
    ) -> Admission:
        """The request id first, and only when it is fresh a token of the tenant. The id stays used either way. Raises
        DatabaseLost for a call that `writes` while Valkey is away."""
        aging = now if wall is None else wall
        if not self._alone.use_request_id(app_key, request_id, aging):
            return REUSED
        if self.degraded:
            admitted = self._decide_alone(tenant_id, qps, now)
        else:
            admission = asyncio.get_running_loop().create_future()
            self._waiting.append(Call(app_key, request_id, tenant_id, qps, now, admission))
            if self._lane is None:
                self._lane = asyncio.create_task(self._round_trips())
            admitted = await admission
        if not (writes and admitted.fresh and self._written):
            return admitted
        self._own.add(app_key, request_id, aging)
        if (self.degraded or self._settling) and not await self._written.use(app_key, request_id):
            return REUSED
        return admitted

    async def close(self) -> None:
        """Answer who still waits, then let the connection go."""
        if self._lane is not None:
            await self._lane
        for task in (self._probe, self._settling):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self._valkey.aclose()

    async def _round_trips(self) -> None:
        """Until nobody waits: ask for all who do, and answer them."""
        try:
            while self._waiting:
                calls = self._waiting[: self.CALLS_PER_ROUND_TRIP]
                del self._waiting[: self.CALLS_PER_ROUND_TRIP]
                for call, admission in zip(calls, await self._decide(calls), strict=True):
                    if not call.admission.done():  # its caller may have gone
                        call.admission.set_result(admission)
        finally:
            self._lane = None

    async def _decide(self, calls: list[Call]) -> list[Admission]:
        if not self.degraded:
            try:
                return await self._ask(calls)
            except Exception as error:  # whatever it is, no call fails for it
                self._lose(error)
        return [self._decide_alone(call.tenant_id, call.qps, call.now) for call in calls]

    def _decide_alone(self, tenant_id: int, qps: int, now: float) -> Admission:
        """For an id that this process has just seen to be fresh."""
        return Admission(True, self._alone.take(tenant_id, qps, now)) if qps else UNLIMITED

    async def _ask(self, calls: Sequence[Call]) -> list[Admission]:
        """One round trip. Raises whatever the client raises, and TimeoutError."""
        keys: list[str] = []
        for call in calls:
            keys.append(f"{self._request_keys}{call.app_key}:{call.request_id}")
            keys.append(f"{self._bucket_keys}{call.tenant_id}")
        async with asyncio.timeout(self._timeout_seconds):
            answers = await self._valkey.eval(ADMIT_SCRIPT, len(keys), *keys, *[call.qps for call in calls])
        return [
            admission_of(decision, debt, call.qps)
            for call, (decision, debt) in zip(calls, ANSWER.iter_unpack(answers), strict=True)
        ]

    def _lose(self, error: Exception) -> None:
        self.degraded = True
        log.warning("shared_admission_lost", error=repr(error))
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        self._probe = asyncio.create_task(self._probe_until_found())

    async def _probe_until_found(self) -> None:
        """Run the real script on a call of nobody's, so that a server that answers but cannot write is not found."""
        nobody = Call("", "", 0, 0, 0.0, asyncio.get_running_loop().create_future())
        kept = self._written is None
        while self.degraded:
            try:
                if not kept and self._written:
                    await self._written.keep(self._own)
                    kept = True
                await asyncio.sleep(self._probe_seconds)
                await self._ask([nobody])
                if self._written:
                    await self._fill(self._written, REQUEST_ID_SECONDS)
                    self._settling = asyncio.create_task(self._settle(self._written))
                self.degraded = False
            except (ValkeyError, OSError, TimeoutError, DatabaseLost):
                if not kept:
                    await asyncio.sleep(self._probe_seconds)
            except Exception as unexpected:
                log.error("shared_admission_probe_failed", error=repr(unexpected))
                await asyncio.sleep(self._probe_seconds)
        log.info("shared_admission_found")

    async def _fill(self, written: WrittenIds, seconds: float) -> None:
        """Puts the ids of the last `seconds` into Valkey. Raises whatever the client raises, and DatabaseLost."""
        async for ids in written.recent(seconds):
            pipeline = self._valkey.pipeline(transaction=False)
            for app_key, request_id in ids:
                pipeline.set(f"{self._request_keys}{app_key}:{request_id}", "", nx=True, px=REQUEST_ID_SECONDS * 1000)
            await pipeline.execute()

    async def _settle(self, written: WrittenIds) -> None:
        """Others may find Valkey a little later, and take calls by PostgreSQL until then: writing calls ask both, and
        what was taken meanwhile is put into Valkey at the end."""
        while True:
            await asyncio.sleep(OTHERS_BACK_SECONDS)
            try:
                await self._fill(written, 6 * OTHERS_BACK_SECONDS)
                break
            except Exception as error:  # until it is done PostgreSQL is asked too
                log.warning("request_ids_not_shared", error=repr(error))
        self._settling = None


def admission_of(decision: int, debt: float, qps: int) -> Admission:
    """What the script's answer to one call means."""
    if decision < 0:
        return REUSED
    if not qps:
        return UNLIMITED
    allowance = rate_limit.allowed if decision else rate_limit.refused
    return Admission(True, allowance(debt, qps, qps * rate_limit.BURST_SECONDS, qps))
