"""Fulfillment: paid lines get their eSIMs, once, whatever dies, hangs or lies on the way."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from dealer_server.db.session import Session
from dealer_server.fulfillment.builtin.fulfiller import Fulfiller
from dealer_server.fulfillment.builtin.lines import BuiltinLines
from dealer_server.fulfillment.engine import Context
from dealer_server.fulfillment.retry import lock_retry_seconds, retry_seconds
from dealer_server.rules.catalogue.package import GB
from dealer_server.rules.orders.model import Order
from dealer_server.rules.refunds.refund import Way
from dealer_server.suppliers.builtin.simulated import Simulated
from dealer_server.suppliers.builtin.stock import Stock
from dealer_server.suppliers.contract import (
    Builtin,
    Done,
    Outcome,
    Pending,
    Rejected,
    ReportSource,
    Unit,
    Unknown,
    VoidOutcome,
    VoidUnit,
)
from dealer_server.wiring.due_work import DueWorkPoller
from support import paths
from support import store_fixture as shops
from support.databases import lock_waiters
from support.patience import PATIENCE, found
from support.store_fixture import PACKAGES, SEED, StoreFixture

DAILY = next(one for one in PACKAGES.values() if one.data_type == "DAILY_REDUCED" and one.supplier == "simulated")
UNLIMITED = next(one for one in PACKAGES.values() if one.data_type == "DAILY_UNLIMITED" and one.supplier == "simulated")


@pytest.fixture
async def fixture(database_url: str) -> AsyncIterator[StoreFixture]:
    async with shops.opened(database_url) as fixture:
        yield fixture


@pytest.fixture
async def dealer(fixture: StoreFixture) -> int:
    return await fixture.dealer()


class Network:
    """The simulated network behind a wire on which a test may do things: `answer` has the unit and the real answer."""

    code = "simulated"
    reports: ReportSource | None = None

    def __init__(self, answer: Callable[[Unit, Outcome], Awaitable[Outcome]], parallel: int = 1):
        self.caps = msgspec.structs.replace(Simulated(SEED).caps, parallel=parallel)
        self.asked: list[str] = []
        self._answer = answer
        self._real = Simulated(SEED)

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        self.asked.append(unit.unit_key)
        return await self._answer(unit, await self._real.allocate(unit, now))

    def way(self, package_code: str, for_refund: bool) -> Way:
        return self._real.way(package_code, for_refund)

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        return await self._real.void(unit, now)


def network(answer: Callable[[Unit, Outcome], Outcome], parallel: int = 1) -> Network:
    async def at_once(unit: Unit, real: Outcome) -> Outcome:
        return answer(unit, real)

    return Network(at_once, parallel)


def statuses(order: Order) -> tuple[str, str, list[str]]:
    return order.order_status, order.delivery_status, [item.item_status for item in order.items]


def iccids(order: Order) -> list[str | None]:
    return [profile.iccid for profile in order.profiles]


async def test_a_paid_order_is_delivered_with_its_codes_and_one_event(fixture: StoreFixture, dealer: int):
    changed: list[bool] = []
    order_id = await fixture.order(dealer, ("TEST-OK", 2))
    assert await fixture.fulfiller(changed=lambda: changed.append(True)).run_once() == 1
    order = await fixture.load(dealer, order_id)
    assert statuses(order) == ("COMPLETED", "DELIVERED", ["DELIVERED"])
    assert order.version == 2 and order.updated_at == fixture.time.now
    assert changed == [True]
    assert await fixture.events(dealer, order_id) == [("ORDER_PAID", 1), ("DELIVERY_UPDATED", 2)]
    for profile in order.profiles:
        assert profile.lifecycle_status == "DELIVERED" and not profile.failed
        assert profile.iccid and profile.iccid.startswith("89000")
        assert profile.activation_code and profile.activation_code.startswith("LPA:1$rsp.sandbox.example$")
        assert profile.qr_token and len(profile.qr_token) == 22
        assert (profile.esim_status, profile.smdp_status) == ("GOT_RESOURCE", "RELEASED")
        assert profile.data_total_bytes == GB
    assert len({profile.qr_token for profile in order.profiles}) == 2
    assert await fixture.due(dealer, order_id) is None
    assert await fixture.violations() == []


async def test_activation_codes_are_sealed_at_rest(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 1))
    await fixture.fulfil()
    (profile,) = (await fixture.load(dealer, order_id)).profiles
    ((row,),) = await fixture.rows("SELECT profile::text FROM profile WHERE tenant_id = $1", dealer)
    assert profile.iccid and profile.activation_code
    assert profile.iccid in str(row)
    assert profile.activation_code.encode().hex() not in str(row)
    assert profile.activation_code not in str(row)


async def test_each_dealer_gets_only_its_own(fixture: StoreFixture, dealer: int):
    other = await fixture.dealer()
    mine, theirs = await fixture.order(dealer, ("TEST-OK", 1)), await fixture.order(other, ("TEST-FAIL", 1))
    await fixture.fulfil()
    assert statuses(await fixture.load(dealer, mine))[0] == "COMPLETED"
    assert statuses(await fixture.load(other, theirs)) == ("FULFILLING", "FAILED", ["FAILED"])
    assert await fixture.events(dealer, theirs) == []


@pytest.mark.parametrize(
    ("package", "days", "total"),
    [("TEST-OK", 1, GB), (DAILY.package_code, 5, 5 * (DAILY.data_bytes or 0)), (UNLIMITED.package_code, 5, None)],
)
async def test_the_data_of_a_profile_is_that_of_all_days_bought(
    fixture: StoreFixture, dealer: int, package: str, days: int, total: int | None
):
    order_id = await fixture.order(dealer, (package, 1, days))
    await fixture.fulfil()
    (profile,) = (await fixture.load(dealer, order_id)).profiles
    assert profile.data_total_bytes == total


async def test_a_delayed_package_comes_five_seconds_after_payment(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-DELAY", 1))
    assert await fixture.fulfil() == 1
    assert statuses(await fixture.load(dealer, order_id)) == ("FULFILLING", "PENDING", ["PENDING"])
    fixture.time.passes(4.999)
    assert await fixture.fulfil() == 0
    fixture.time.passes(0.001)
    assert await fixture.fulfil() == 1
    order = await fixture.load(dealer, order_id)
    assert statuses(order) == ("COMPLETED", "DELIVERED", ["DELIVERED"])
    assert order.version == 3
    assert await fixture.violations() == []


async def test_a_partial_package_comes_in_two_halves(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-PARTIAL", 5))
    await fixture.fulfil()
    first = await fixture.load(dealer, order_id)
    assert statuses(first) == ("FULFILLING", "PARTIAL", ["PENDING"])
    assert [code is not None for code in iccids(first)] == [True, True, True, False, False]
    assert await fixture.due(dealer, order_id) == 10
    assert await fixture.violations() == []
    fixture.time.passes(10)
    await fixture.fulfil()
    second = await fixture.load(dealer, order_id)
    assert statuses(second) == ("COMPLETED", "DELIVERED", ["DELIVERED"])
    assert second.profiles[:3] == first.profiles[:3]


async def test_a_failed_line_leaves_its_neighbours_alone_and_is_never_looked_at_again(
    fixture: StoreFixture, dealer: int
):
    await fixture.load_stock(2)
    order_id = await fixture.order(dealer, ("TEST-OK", 2), ("TEST-FAIL", 2), ("DEMO-STOCK", 1))
    await fixture.fulfil()
    order = await fixture.load(dealer, order_id)
    assert statuses(order) == ("FULFILLING", "PARTIAL", ["DELIVERED", "FAILED", "DELIVERED"])
    assert [profile.failed for profile in order.profiles] == [False, False, True, True, False]
    fixture.time.passes(86_400)
    assert await fixture.fulfil() == 0
    assert await fixture.violations() == []


async def test_a_big_batch_is_claimed_in_parts(fixture: StoreFixture, dealer: int):
    """At most 200 lines, and no more once 1 000 profiles are reached."""
    big = await fixture.orders(dealer, [[("TEST-OK", 100)] for _ in range(12)])
    worker = fixture.fulfiller()
    assert [await worker.run_once() for _ in range(3)] == [10, 2, 0]
    small = await fixture.orders(dealer, [[("TEST-OK", 1)] for _ in range(250)])
    assert [await worker.run_once() for _ in range(3)] == [200, 50, 0]
    for order_id in (*big, small[0], small[-1]):
        assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"
    assert await fixture.violations() == []


async def test_the_biggest_order_is_delivered(fixture: StoreFixture, dealer: int):
    codes = [code for code, package in PACKAGES.items() if package.data_type == "TOTAL" and code[:4] != "TEST"]
    order_id = await fixture.order(dealer, *[(code, 5) for code in codes[:99] if code != "DEMO-STOCK"])
    await fixture.fulfil()
    order = await fixture.load(dealer, order_id)
    assert order.order_status == "COMPLETED" and len(set(iccids(order))) == len(order.profiles) > 480
    assert [profile.profile_id for profile in order.profiles] == sorted(one.profile_id for one in order.profiles)


class CountedSession:
    """A session that counts its statements."""

    def __init__(self, session: Session):
        self.statements = 0
        self._session = session

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        self.statements += 1
        return await self._session.fetch(sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.one_server("it looks for dealers first")
@pytest.mark.parametrize(("package", "statements"), [("TEST-OK", 9), ("DEMO-STOCK", 10), ("TEST-DELAY", 8)])
@pytest.mark.parametrize("orders", [1, 50])
async def test_a_batch_takes_as_many_statements_whatever_its_size(
    fixture: StoreFixture, dealer: int, package: str, statements: int, orders: int
):
    await fixture.load_stock(50)
    await fixture.orders(dealer, [[(package, 1)] for _ in range(orders)])
    counted = CountedSession(fixture.database.session())
    context = Context(counted, fixture.data_keys, PACKAGES.get, fixture.time, lambda: None)  # type: ignore[arg-type]
    engine = BuiltinLines(Stock() if package == "DEMO-STOCK" else Simulated(SEED), context)
    assert await engine.run_once() == orders
    await engine.close()
    assert counted.statements == statements


# What is cancelled gets nothing


CANCEL = (
    "UPDATE profile SET lifecycle_status = 'CANCELLED', cancelled = true WHERE tenant_id = $1 AND profile_id = $2"
    " RETURNING profile_id"
)


async def test_a_profile_cancelled_before_delivery_gets_nothing(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 2))
    first, second = (await fixture.load(dealer, order_id)).profiles
    await fixture.rows(CANCEL, dealer, first.profile_id)
    supplier = network(lambda unit, real: real)
    await fixture.fulfil(supplier)
    order = await fixture.load(dealer, order_id)
    assert supplier.asked == [f"u-{order_id}-0-2"]
    assert iccids(order)[0] is None and order.profiles[0].lifecycle_status == "CANCELLED"
    assert order.profiles[1].iccid and order.profiles[1].profile_id == second.profile_id
    assert statuses(order) == ("COMPLETED", "DELIVERED", ["DELIVERED"])


async def test_a_profile_cancelled_while_its_supplier_works_gets_nothing(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 2))
    first, _ = (await fixture.load(dealer, order_id)).profiles

    async def cancelled_meanwhile(unit: Unit, real: Outcome) -> Outcome:
        if unit.position == 1:
            await fixture.rows(CANCEL, dealer, first.profile_id)
        return real

    await fixture.fulfil(Network(cancelled_meanwhile))
    order = await fixture.load(dealer, order_id)
    assert order.profiles[0].iccid is None and order.profiles[0].lifecycle_status == "CANCELLED"
    assert statuses(order) == ("COMPLETED", "DELIVERED", ["DELIVERED"])
    assert await fixture.due(dealer, order_id) is None


async def test_a_line_whose_profiles_are_all_cancelled_is_done(fixture: StoreFixture, dealer: int):
    await fixture.load_stock(1)
    order_id = await fixture.order(dealer, ("DEMO-STOCK", 1))
    await fixture.rows(CANCEL, dealer, (await fixture.load(dealer, order_id)).profiles[0].profile_id)
    await fixture.fulfil()
    assert await fixture.due(dealer, order_id) is None
    assert (await fixture.load(dealer, order_id)).profiles[0].iccid is None


# What nobody knows is asked again, with the same key, and never given up


@pytest.mark.parametrize(
    "fault",
    [
        Unknown("reset"),
        Rejected("TEMPORARY", False, "busy"),
        RuntimeError("LPA:1$secret$SECRET"),
        TimeoutError(),
        None,
        Done("123", "LPA:1$rsp.example.com$A"),
        Done("8944000000000000003", "LPA:1$rsp.example.com"),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_an_outcome_nobody_knows_is_asked_for_again_later(
    fixture: StoreFixture, dealer: int, fault: object, capfd: pytest.CaptureFixture[str]
):
    order_id = await fixture.order(dealer, ("TEST-OK", 1))

    def faulty(unit: Unit, real: Outcome) -> Outcome:
        if isinstance(fault, Exception):
            raise fault
        return fault  # type: ignore[return-value]

    supplier = network(faulty)
    for wait in (5, 10, 20, 40, 80, 160, 320, 600, 600):
        assert await fixture.fulfil(supplier) == 1
        order = await fixture.load(dealer, order_id)
        assert statuses(order) == ("FULFILLING", "PENDING", ["PENDING"])
        assert not order.profiles[0].failed
        assert await fixture.due(dealer, order_id) == wait
        fixture.time.passes(wait)
    assert set(supplier.asked) == {f"u-{order_id}-0-1"}
    assert "SECRET" not in "".join(capfd.readouterr())
    await fixture.fulfil()
    assert statuses(await fixture.load(dealer, order_id)) == ("COMPLETED", "DELIVERED", ["DELIVERED"])
    assert await fixture.events(dealer, order_id) == [
        ("ORDER_PAID", 1),
        ("DELIVERY_UPDATED", 2),
        ("DELIVERY_UPDATED", 3),
    ]
    assert await fixture.violations() == []


async def test_the_wait_starts_anew_once_a_supplier_has_answered(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 1))
    answers: list[Outcome] = [Unknown("a"), Unknown("b"), Pending(30), Unknown("c"), Unknown("d")]
    supplier = network(lambda unit, real: answers.pop(0) if answers else real)
    for wait in (5, 10, 30, 5, 10):
        await fixture.fulfil(supplier)
        assert await fixture.due(dealer, order_id) == wait
        fixture.time.passes(wait)


async def test_a_line_is_due_as_soon_as_one_of_its_units_wants_it(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 3))
    outcomes = {1: Unknown("?"), 2: Pending(2), 3: Pending(60)}
    await fixture.fulfil(network(lambda unit, real: outcomes[unit.position]))
    assert await fixture.due(dealer, order_id) == 2


@pytest.mark.parametrize(("asked", "wait"), [(-1.0, 0.05), (0.0, 0.05), (7.5, 7.5), (1e9, 3600.0)])
async def test_a_supplier_cannot_make_us_spin_or_forget(fixture: StoreFixture, dealer: int, asked: float, wait: float):
    order_id = await fixture.order(dealer, ("TEST-OK", 1))
    await fixture.fulfiller(network(lambda unit, real: Pending(asked))).run_once()
    assert await fixture.due(dealer, order_id) == wait


def test_the_wait_between_tries_doubles_up_to_ten_minutes():
    assert [retry_seconds(claims) for claims in (1, 2, 3, 7, 8, 9, 1_000_000)] == [5, 10, 20, 320, 600, 600, 600]
    assert [lock_retry_seconds(claims) for claims in (1, 2, 3, 10, 11, 1_000_000)] == [1, 2, 4, 512, 600, 600]


async def test_a_package_this_process_does_not_know_yet_waits_a_second(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 1))
    await fixture.fulfiller(package=lambda code: None).run_once()
    order = await fixture.load(dealer, order_id)
    assert statuses(order) == ("PAID", "PENDING", ["PAID"]) and order.version == 1
    assert await fixture.due(dealer, order_id) == 1


# Several workers, and workers that die


async def test_many_workers_at_once_deliver_everything_once(fixture: StoreFixture, dealer: int):
    other = await fixture.dealer()
    await fixture.load_stock(600)
    wanted = [[("DEMO-STOCK", 1), ("TEST-OK", 2)], [("DEMO-STOCK", 3)]] * 75
    placed = [(owner, one) for owner in (dealer, other) for one in await fixture.orders(owner, wanted)]
    workers = [fixture.fulfiller() for _ in range(6)]

    async def work(number: int) -> None:
        while await workers[number].run_once():
            pass

    await asyncio.gather(*[work(number) for number in range(6)])
    fixture.time.passes(5)  # where a worker found the rest of the stock in other hands
    await fixture.fulfil()
    orders = [await fixture.load(*key) for key in placed]
    assert {order.order_status for order in orders} == {"COMPLETED"}
    codes = [code for order in orders for code in iccids(order)]
    assert len(codes) == len(set(codes)) == 600 + 300
    assert await fixture.rows("SELECT count(*) FROM stock_profile WHERE taken_by IS NULL") == [(0,)]
    assert await fixture.violations() == []


@pytest.mark.parametrize("package", ["TEST-OK", "TEST-DELAY"])
async def test_a_worker_paused_past_its_lease_writes_nothing(fixture: StoreFixture, dealer: int, package: str):
    """Whether the worker that took over has delivered, or been told to wait."""
    order_id = await fixture.order(dealer, (package, 1))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def paused(unit: Unit, real: Outcome) -> Outcome:
        asked.set()
        await go_on.wait()
        return Done("8944000000000000001", "LPA:1$elsewhere.example$STALE")

    slow = asyncio.create_task(fixture.fulfiller(Network(paused)).run_once())
    await asyncio.wait_for(asked.wait(), PATIENCE)
    assert await fixture.fulfil() == 0
    fixture.time.passes(60)
    told = [Pending(30)] if package == "TEST-DELAY" else []
    assert await fixture.fulfiller(network(lambda unit, real: told.pop() if told else real)).run_once() == 1
    rivalled, due = await fixture.load(dealer, order_id), await fixture.due(dealer, order_id)
    go_on.set()
    assert await slow == 1
    assert await fixture.load(dealer, order_id) == rivalled
    assert await fixture.due(dealer, order_id) == due
    assert rivalled.order_status == ("FULFILLING" if package == "TEST-DELAY" else "COMPLETED")
    fixture.time.passes(30)
    await fixture.fulfil()
    order = await fixture.load(dealer, order_id)
    assert order.order_status == "COMPLETED" and iccids(order) != ["8944000000000000001"]


async def test_a_worker_late_but_unrivalled_still_delivers(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 1))

    async def late(unit: Unit, real: Outcome) -> Outcome:
        fixture.time.passes(3600)
        return real

    await fixture.fulfil(Network(late))
    assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"


KILLED = """
import asyncio, sys
from datetime import datetime
import msgspec
from dealer_server import store
from dealer_server.fulfillment.builtin.fulfiller import Fulfiller
from dealer_server.db.database import Database
from dealer_server.suppliers.builtin.simulated import Simulated
from support.patience import PATIENCE
from support.store_fixture import MASTER_KEYS, PACKAGES, SEED

class Doomed:
    code, real = "simulated", Simulated(SEED)
    caps = msgspec.structs.replace(real.caps, parallel=2)  # one that may be waited for

    async def allocate(self, unit, now):
        answer = await self.real.allocate(unit, now)
        print(unit.unit_key, answer.iccid, answer.activation_code, flush=True)
        if unit.position == unit.quantity:
            await asyncio.sleep(3600)
        return answer

async def main():
    database = await Database.open(sys.argv[1])
    async with database.connection() as connection:
        keys = await store.data_key.load(connection, MASTER_KEYS)
    now = datetime.fromisoformat(sys.argv[2])
    await Fulfiller(database, {"simulated": Doomed()}, keys, PACKAGES.get, lambda: now).run_once()

asyncio.run(main())
"""


async def test_a_worker_killed_after_its_supplier_answered_buys_nothing_twice(
    fixture: StoreFixture, dealer: int, database_url: str
):
    order_id = await fixture.order(dealer, ("TEST-OK", 3))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, database_url, fixture.time.now.isoformat(),
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(paths.TESTS)},
    )  # fmt: skip
    assert child.stdout
    answered = [(await asyncio.wait_for(child.stdout.readline(), PATIENCE)).decode().split() for _ in range(3)]
    child.send_signal(signal.SIGKILL)
    await child.wait()
    assert iccids(await fixture.load(dealer, order_id)) == [None, None, None]
    assert await fixture.fulfil() == 0
    fixture.time.passes(60)
    assert await fixture.fulfil() == 1
    order = await fixture.load(dealer, order_id)
    assert [[f"u-{order_id}-0-{n}", p.iccid, p.activation_code] for n, p in enumerate(order.profiles, 1)] == answered
    assert order.order_status == "COMPLETED"


async def test_a_worker_told_to_stop_records_what_it_knows(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 3))
    hanging = asyncio.Event()

    async def hangs_at_the_second(unit: Unit, real: Outcome) -> Outcome:
        if unit.position == 2:
            hanging.set()
            await asyncio.Event().wait()
        return real

    running = asyncio.create_task(fixture.fulfiller(Network(hangs_at_the_second)).run())
    await asyncio.wait_for(hanging.wait(), PATIENCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    order = await fixture.load(dealer, order_id)
    assert [code is not None for code in iccids(order)] == [True, False, False]
    assert statuses(order) == ("FULFILLING", "PARTIAL", ["PENDING"])
    assert await fixture.due(dealer, order_id) == 1  # the third was not asked for; another worker may take it at once
    fixture.time.passes(1)
    await fixture.fulfil()
    assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"


async def test_what_a_supplier_answered_survives_a_lost_database(fixture: StoreFixture, dealer: int):
    order_id = await fixture.order(dealer, ("TEST-OK", 2))
    supplier = network(lambda unit, real: real)
    async with fixture.database.transaction() as rival:
        await rival.execute("SELECT 1 FROM orders WHERE tenant_id = $1 AND order_id = $2 FOR UPDATE", dealer, order_id)
        working = asyncio.create_task(fixture.fulfiller(supplier).run_once())
        waiting = f"{lock_waiters()} WHERE application_name = 'esim-dealer session'"
        async with asyncio.timeout(PATIENCE):
            while not await fixture.rows(f"SELECT pg_terminate_backend(pid) FROM {waiting}"):
                pass  # it is not recording yet
    assert await working == 1
    assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"
    assert supplier.asked == [f"u-{order_id}-0-1", f"u-{order_id}-0-2"]


async def test_a_poisonous_order_fails_alone_and_is_tried_ever_later(fixture: StoreFixture, dealer: int):
    """Its supplier gives an ICCID that this dealer has from another order: nothing of it can be written."""
    await fixture.order(dealer, ("TEST-OK", 1))
    await fixture.fulfil()
    ((taken,),) = await fixture.rows("SELECT iccid FROM profile WHERE tenant_id = $1", dealer)
    poison = await fixture.order(dealer, ("TEST-OK", 1), ("TEST-DELAY", 1))
    good = await fixture.orders(dealer, [[("TEST-OK", 1)] for _ in range(20)])

    def twice(unit: Unit, real: Outcome) -> Outcome:
        if unit.unit_key == f"u-{poison}-0-1" and isinstance(real, Done):
            return Done(str(taken), real.activation_code)
        return real

    supplier = network(twice)
    for wait in (5, 10, 20):
        assert await fixture.fulfiller(supplier).run_once() > 0
        assert await fixture.due(dealer, poison, 0) == wait
        fixture.time.passes(wait)
    for order_id in good:
        assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"
    assert statuses(await fixture.load(dealer, poison)) == ("PAID", "PENDING", ["PAID", "PAID"])
    await fixture.fulfil()
    assert statuses(await fixture.load(dealer, poison))[0] == "COMPLETED"
    assert await fixture.violations() == []


# The loop


@contextlib.asynccontextmanager
async def running(fixture: StoreFixture, changed: asyncio.Event, *suppliers: Builtin) -> AsyncIterator[Fulfiller]:
    fulfiller = fixture.fulfiller(*suppliers, changed=changed.set)
    task = asyncio.create_task(fulfiller.run())
    try:
        yield fulfiller
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("supplier", ["simulated", ""])
async def test_the_loop_is_woken_by_an_order_of_its_supplier(fixture: StoreFixture, dealer: int, supplier: str):
    changed = asyncio.Event()
    async with running(fixture, changed) as fulfiller:
        order_id = await fixture.order(dealer, ("TEST-OK", 1))
        fulfiller.wake(supplier)
        await asyncio.wait_for(changed.wait(), PATIENCE)
    assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"


async def test_the_loop_is_woken_when_a_line_of_its_supplier_is_due(fixture: StoreFixture, dealer: int):
    changed = asyncio.Event()
    async with running(fixture, changed) as fulfiller:
        order_id = await fixture.order(dealer, ("TEST-OK", 1))
        poller = DueWorkPoller(fixture.database, fixture.time, lambda: fulfiller.engines, {})
        polling = asyncio.create_task(poller.run())
        await asyncio.wait_for(changed.wait(), PATIENCE)
        polling.cancel()
        await asyncio.wait([polling])
    assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"


async def test_a_supplier_that_hangs_holds_up_no_other(fixture: StoreFixture, dealer: int):
    await fixture.load_stock(1)
    stuck = await fixture.order(dealer, ("TEST-OK", 1))
    hanging, changed = asyncio.Event(), asyncio.Event()

    async def hangs(unit: Unit, real: Outcome) -> Outcome:
        hanging.set()
        await asyncio.Event().wait()
        return real

    async with running(fixture, changed, Network(hangs)) as fulfiller:
        await asyncio.wait_for(hanging.wait(), PATIENCE)
        order_id = await fixture.order(dealer, ("DEMO-STOCK", 1))
        fulfiller.wake("stock")
        await asyncio.wait_for(changed.wait(), PATIENCE)
        assert statuses(await fixture.load(dealer, order_id))[0] == "COMPLETED"
        assert statuses(await fixture.load(dealer, stuck))[0] == "PAID"


async def test_a_slow_unit_holds_up_only_its_place_among_the_parallel_ones(fixture: StoreFixture, dealer: int):
    await fixture.order(dealer, ("TEST-OK", 20))
    third_asked, in_flight, most = asyncio.Event(), 0, 0

    async def first_waits_for_the_third(unit: Unit, real: Outcome) -> Outcome:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        if unit.position == 1:
            await asyncio.wait_for(third_asked.wait(), PATIENCE)
        await asyncio.sleep(0)
        if unit.position == 15:
            third_asked.set()
        in_flight -= 1
        return real

    await fixture.fulfil(Network(first_waits_for_the_third, parallel=3))
    assert most == 3


async def test_lines_of_a_supplier_not_set_up_are_told_of(
    fixture: StoreFixture, dealer: int, capfd: pytest.CaptureFixture[str]
):
    await fixture.order(dealer, ("TEST-OK", 1))
    await fixture.rows("UPDATE order_item SET supplier = 'es2:gone', due_at = '2026-01-01Z' RETURNING 1")
    await fixture.order(dealer, ("TEST-DELAY", 1))
    await fixture.rows(
        "INSERT INTO supplier (code, kind, settings, event_token) VALUES ('es2:busy', 'es2plus', '', '') RETURNING 1"
    )
    await fixture.rows(
        "UPDATE order_item SET supplier = 'es2:busy', due_at = '2026-01-01Z' WHERE package_code = 'TEST-DELAY'"
        " RETURNING 1"
    )
    logged = ""

    async def told() -> bool | None:
        nonlocal logged
        logged += "".join(capfd.readouterr())
        return "es2:gone" in logged or None

    async with running(fixture, asyncio.Event()):
        await found(told)
    assert "es2:busy" not in logged  # its lines wait for it
