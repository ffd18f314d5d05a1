"""The clock that tells the database's time, with given readings; and two machines whose own clocks are wrong."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dealer_server.clock import DatabaseClock
from dealer_server.rules.orders import identity
from support import trading
from support.processes import environment, running
from support.trading import Trading

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class Machine:
    """A monotonic clock and a wall clock that stand where a test puts them, and a database with a clock of its own."""

    def __init__(self, ahead: float = 0.0):
        self.monotonic = 1_000.0
        self.database = NOON.timestamp()
        self.ahead = ahead
        self.clock = DatabaseClock(lambda: self.monotonic, lambda: self.database + self.ahead)

    def passes(self, seconds: float) -> None:
        self.monotonic += seconds
        self.database += seconds

    def measure(self, there: float = 0.0, back: float = 0.0) -> None:
        """The question takes so long to the database, the answer so long back."""
        sent = self.monotonic
        self.passes(there)
        read = self.database
        self.passes(back)
        self.clock.measured(read, sent)

    @property
    def error(self) -> float:
        """How far the clock is ahead of the database's, to the millisecond."""
        return round(self.clock.now().timestamp() - self.database, 3)


@pytest.mark.parametrize("ahead", [0, 3_600, -3_600])
def test_the_clock_follows_the_database_not_the_wall_clock(ahead: float):
    machine = Machine(ahead)
    machine.measure(0.01, 0.01)
    assert machine.error == 0
    for step in (7_200, -100_000, 0.5):
        machine.ahead += step
        machine.passes(100)
        assert machine.error == 0
        machine.measure()
        assert machine.error == 0


def test_the_offset_starts_at_half_a_round_trip_and_improves_with_faster_answers():
    machine = Machine()
    machine.measure(there=0.6, back=0.2)
    assert machine.error == 0.2
    machine.passes(1)
    machine.measure(there=0.01, back=0.03)
    machine.passes(1)
    assert machine.error == 0.01
    before = machine.error
    machine.measure(there=2.0, back=1.0)
    assert machine.error == before, "a slow answer says less"


def test_time_pauses_when_the_database_clock_steps_back():
    machine = Machine()
    machine.measure()
    before = machine.clock.now()
    machine.database -= 0.9
    machine.measure()
    assert machine.clock.now() == before
    machine.passes(0.5)
    assert machine.clock.now() == before
    machine.passes(0.5)
    assert machine.error == 0 and machine.clock.now() > before


@pytest.mark.parametrize("step", [-3_600, -1.5, 3_600, 0.4])
def test_after_a_failover_the_new_database_clock_counts(step: float):
    machine = Machine()
    machine.measure()
    machine.clock.now()
    machine.database += step
    machine.measure()
    assert machine.error == 0


@pytest.mark.parametrize(("ahead", "apart"), [(4.9, False), (5.1, True), (-4.9, False), (-5.1, True)])
def test_more_than_five_seconds_apart_is_too_far(ahead: float, apart: bool):
    machine = Machine(ahead)
    machine.measure()
    assert machine.clock.apart is apart
    machine.ahead = 0
    machine.measure()
    assert machine.clock.apart is False


# Real processes


def off(database_url: str, by: str) -> dict[str, str]:
    """The environment of a process on a machine whose wall clock is wrong."""
    return environment(database_url, LD_PRELOAD=str(FAKETIME), FAKETIME=by, DONT_FAKE_MONOTONIC="1")


@pytest.mark.skipif(not FAKETIME.exists(), reason="libfaketime is not installed (Debian: faketime)")
async def test_processes_with_wrong_clocks_use_the_database_time(database_url: str):
    together = ("serve", "--port", "0", "--share-nothing")
    async with trading.opened(database_url) as workload:
        made = await workload.service.tenant(balance="1000", qps=0)
        [(began,)] = await workload.rows("SELECT clock_timestamp()")
        async with (
            running(*together, env=off(database_url, "+1h")) as ahead,
            running(*together, env=off(database_url, "-1h")) as behind,
            running("work", env=environment(database_url)),
            workload.service.client(made) as client,
        ):
            url = await ahead.ready()
            async with workload.buyers.buying(url, await behind.ready()):
                for _ in range(5):
                    await workload.buyers.next_acknowledged()
            for process, words in ((ahead, "ahead of"), (behind, "behind")):
                await process.says("clock_off")
                ready = await client.http.get(f"{await process.ready()}/readyz")
                assert ready.status_code == 503
                [reason] = [one for one in ready.json()["reasons"] if one.startswith("clock: ")]
                assert words in reason
                order = await replace(client, url=await process.ready()).order()
                assert order.code == "000000"
                told = await replace(client, url=await process.ready()).delivered(order.data["orderNo"])
                assert told["deliveryStatus"] == "DELIVERED"
            await workload.all_is_well(url)
            assert ahead.events["clock_off"] == behind.events["clock_off"] == 1
        await _all_is_of_now(workload, began)


async def _all_is_of_now(workload: Trading, began: object) -> None:
    """Every time and every id lies between `began` and now, by the database's clock."""
    assert isinstance(began, datetime)
    [(now,)] = await workload.rows("SELECT clock_timestamp()")
    assert isinstance(now, datetime)
    times = [
        "SELECT updated_at FROM orders",
        "SELECT created_at FROM webhook_delivery",
        "SELECT delivered_at FROM webhook_delivery",
        "SELECT started_at FROM webhook_attempt",
        "SELECT created_at FROM ledger_entry WHERE entry_type = 'ORDER_PAY'",
    ]
    for sql in times:
        rows = [row[0] for row in await workload.rows(sql)]
        assert rows and all(began <= at <= now for at in rows if isinstance(at, datetime)), sql
    for (order_id,) in await workload.rows("SELECT order_id FROM orders"):
        assert isinstance(order_id, int)
        at = identity.created_at(order_id)
        assert began - timedelta(seconds=5) <= at <= now + timedelta(seconds=5)
