"""Orders of one wallet at several processes; dealers who cannot pay (docs/decisions/0024-wallets-as-found.md)."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.rules.orders.order import Decision, OrderRequest, Placed, Repeated
from dealer_server.rules.orders.priced_lines import OrderLine
from dealer_server.rules.refusal import BalanceInsufficient, Refusal, WalletFrozen
from support import store_fixture
from support.faults.postgres_machine import connected
from support.store_fixture import PACKAGES, StoreFixture

STOCK_CODES = 20


@pytest.fixture(scope="module")
async def fixture(database_url: str) -> AsyncIterator[StoreFixture]:
    async with store_fixture.opened(database_url) as one:
        yield one


@asynccontextmanager
async def processes(fixture: StoreFixture, count: int = 2) -> AsyncIterator[list[OrderBatcher]]:
    """The batchers of as many `serve`, each with connections and ids of its own."""
    async with AsyncExitStack() as stack:
        batchers = []
        for _ in range(count):
            ids = fixture.database.session()
            stack.push_async_callback(ids.close)
            batchers.append(OrderBatcher(fixture.database, IdAllocator(ids, fixture.time), fixture.time))
            stack.push_async_callback(batchers[-1].close)
        yield batchers


def wanted(dealer: int, amount: int = 18_000, package: str = "TEST-OK") -> OrderRequest:
    line = OrderLine(package, 1, 1, amount, PACKAGES[package].supplier)
    return OrderRequest(dealer, f"t-{secrets.token_hex(8)}", secrets.token_bytes(16), "USD", amount, (line,))


async def all_of(decisions: Sequence[Awaitable[Decision]]) -> list[Decision]:
    """Refusals are raised; here they stand among the others."""
    answers = await asyncio.gather(*decisions, return_exceptions=True)
    decided = [answer for answer in answers if isinstance(answer, Placed | Repeated | Refusal)]
    assert len(decided) == len(answers), answers
    return decided


def kinds(decisions: Sequence[Decision]) -> set[type[Decision]]:
    return {type(decision) for decision in decisions}


async def balance(fixture: StoreFixture, dealer: int) -> int:
    ((found,),) = await fixture.rows("SELECT balance FROM wallet WHERE tenant_id = $1", dealer)
    assert isinstance(found, int)
    return found


async def change(fixture: StoreFixture, dealer: int, **terms: object) -> None:
    await set_tenant(fixture.database, dealer, Terms(**terms), "test", fixture.time)  # type: ignore[arg-type]


async def test_two_processes_debit_one_wallet_in_one_chain_of_entries(fixture: StoreFixture):
    dealer = await fixture.dealer()
    before = await balance(fixture, dealer)
    async with processes(fixture) as batchers:
        for _ in range(5):
            orders = [batchers[number % 2].submit(wanted(dealer)) for number in range(60)]
            assert kinds(await all_of(orders)) == {Placed}
    assert await balance(fixture, dealer) == before - 300 * 18_000
    assert await fixture.violations() == []


async def test_a_process_debits_a_wallet_as_others_left_it(fixture: StoreFixture):
    """Whatever moved it since the process last did: another process, a top-up."""
    dealers = [await fixture.dealer() for _ in range(5)]
    async with processes(fixture) as (one, other):
        for turn in range(6):
            await change(fixture, dealers[turn % 5], balance="50")
            for batcher in (one, other, one):
                assert kinds(await all_of([batcher.submit(wanted(dealer)) for dealer in dealers])) == {Placed}
    assert await fixture.violations() == []


async def test_a_transaction_id_at_two_processes_at_once_makes_one_order(fixture: StoreFixture):
    dealer = await fixture.dealer()
    async with processes(fixture) as batchers:
        for count in (1, 3, 40):  # small batches look for known transactionIds, large ones leave it to the index
            orders = [wanted(dealer) for _ in range(count)]
            sent = [[batcher.submit(order) for order in orders] for batcher in batchers]
            pairs = zip(*[await all_of(of_one) for of_one in sent], strict=True)
            for first, second in pairs:
                assert {type(first), type(second)} == {Placed, Repeated}
                assert isinstance(first, Placed | Repeated) and isinstance(second, Placed | Repeated)
                assert first.order_id == second.order_id
    assert await fixture.violations() == []


async def test_a_transaction_id_in_two_batches_that_follow_each_other_makes_one_order(fixture: StoreFixture):
    dealer = await fixture.dealer()
    order = wanted(dealer)
    async with processes(fixture, 1) as (batcher,):
        first = batcher.submit(order)
        await asyncio.sleep(0)  # its batch has begun
        decisions = await all_of([first, *[batcher.submit(one) for one in (order, wanted(dealer), order)]])
    assert [type(decision) for decision in decisions] == [Placed, Repeated, Placed, Repeated]
    assert await fixture.violations() == []


async def test_a_dealer_who_cannot_pay_buys_again_once_it_can(fixture: StoreFixture):
    poor, rich = await fixture.dealer(), await fixture.dealer()
    async with processes(fixture, 1) as (batcher,):
        for terms, refused in (({"balance": "0"}, BalanceInsufficient), ({"frozen": True}, WalletFrozen)):
            await change(fixture, poor, **terms)
            for _ in range(3):
                both = await all_of([batcher.submit(wanted(dealer)) for dealer in (poor, rich, poor)])
                assert [type(decision) for decision in both] == [refused, Placed, refused]
            await change(fixture, poor, balance="10", frozen=False)
            for _ in range(3):
                assert kinds(await all_of([batcher.submit(wanted(dealer)) for dealer in (poor, rich)])) == {Placed}
    assert await fixture.violations() == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.integers(0, 60),
    amounts=st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=30),
)
async def test_no_order_is_placed_beyond_the_balance_and_none_refused_that_it_still_covers(
    fixture: StoreFixture, start: int, amounts: list[tuple[int, bool]]
):
    dealer = await fixture.dealer()
    await change(fixture, dealer, balance=str(start))
    async with processes(fixture) as batchers:
        orders = [wanted(dealer, amount * 10_000) for amount, _ in amounts]
        sent = [batchers[at].submit(order) for order, (_, at) in zip(orders, amounts, strict=True)]
        decisions = await all_of(sent)
    left = await balance(fixture, dealer)
    paid = sum(decision.request.amount for decision in decisions if isinstance(decision, Placed))
    assert left == start * 10_000 - paid >= 0
    for order, decision in zip(orders, decisions, strict=True):
        assert isinstance(decision, Placed) or order.amount > left
    assert await fixture.violations() == []


async def test_orders_of_a_held_wallet_are_placed_once_it_is_free(fixture: StoreFixture):
    """They wait for it, and the wallet has moved when they get it."""
    held, free = await fixture.dealer(), await fixture.dealer()
    async with processes(fixture, 1) as (batcher,), connected(fixture.database.dsn) as holder:
        async with holder.transaction():
            await holder.execute("SELECT FROM wallet WHERE tenant_id = $1 FOR UPDATE", held)
            waiting = [batcher.submit(wanted(held)) for _ in range(20)]
            assert kinds(await all_of([batcher.submit(wanted(free)) for _ in range(20)])) == {Placed}
            assert not any(one.done() for one in waiting)
        waiting += [batcher.submit(wanted(held)) for _ in range(20)]
        assert kinds(await all_of(waiting)) == {Placed}
    assert await fixture.violations() == []


async def test_two_processes_sell_each_stock_code_once(fixture: StoreFixture):
    dealers = [await fixture.dealer() for _ in range(3)]
    await fixture.load_stock(STOCK_CODES)
    async with processes(fixture) as batchers:
        orders = [wanted(dealer, 25_000, "DEMO-STOCK") for dealer in dealers for _ in range(10)]
        decisions = await all_of([batchers[number % 2].submit(order) for number, order in enumerate(orders)])
    assert sum(isinstance(decision, Placed) for decision in decisions) == STOCK_CODES
    assert await fixture.violations() == []
