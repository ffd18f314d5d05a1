"""Refusals raise no ERROR in PostgreSQL: its log shows faults only."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dealer_server.operations.catalogue import load_stock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.suppliers.configure import put_supplier
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.operations.users import accounts
from dealer_server.operations.users.password import Passwords
from dealer_server.operations.wallets.adjust import adjust_balance
from dealer_server.store.tenants import data_key
from support.api_client import ApiClient, Service
from support.store_fixture import stock_csv


@asynccontextmanager
async def no_errors(postgres: str) -> AsyncIterator[None]:
    """PostgreSQL logs no ERROR meanwhile."""
    [folder] = parse_qs(urlsplit(postgres).query)["host"]
    log = Path(folder).parent / "log"
    before = log.stat().st_size
    yield
    with log.open("rb") as file:
        file.seek(before)
        said = file.read().decode()
    assert "ERROR" not in said, said


def refusals(service: Service, tenant_id: int) -> list[tuple[str, Callable[[], Coroutine[Any, Any, object]]]]:
    """Each with words of its refusal."""
    database, keys = service.database, service.settings.master_keys

    def clock() -> Any:
        return database.clock.now()

    def adjust(amount: str) -> Coroutine[Any, Any, object]:
        return adjust_balance(database, tenant_id, amount, "a reason", "test", clock)

    def change(**terms: Any) -> Coroutine[Any, Any, object]:
        return set_tenant(database, tenant_id, Terms(**terms), "test", clock)

    def person(name: str, of: int | None = tenant_id) -> Coroutine[Any, Any, object]:
        return accounts.create(database, Passwords(), of, name, "finance", "test")

    async def bad_supplier() -> None:
        async with database.connection() as connection:
            data_keys = await data_key.load(connection, keys)
        await put_supplier(database, data_keys, "Not A Code", "chain", b"{}", "http://us.example", "test")

    return [
        ("do not cover", lambda: adjust("-1000000")),
        ("out of range", lambda: change(balance="-2000")),
        ("out of range", lambda: change(qps=-1)),
        ("out of range", lambda: change(qps=2**40)),
        ("out of range", lambda: change(markup="-100")),
        ("no package", lambda: change(prices={"NO-SUCH-PACKAGE": "1"})),
        ("no tenant", lambda: person("somebody", 7)),
        ("1 to 100 characters", lambda: person("two words")),
        ("1 to 100 characters", lambda: person("")),
        ("1 to 100 characters", lambda: person("x" * 101)),
        ("already", lambda: person("Twice")),
        ("a code is", bad_supplier),
    ]


async def test_refused_operator_writes_raise_no_database_error(service: Service, dealer: ApiClient, postgres: str):
    await accounts.create(service.database, Passwords(), dealer.tenant_id, "twice", "finance", "test")
    async with no_errors(postgres):
        for words, attempt in refusals(service, dealer.tenant_id):
            with pytest.raises(OperatorError, match=words):
                await attempt()
    assert await service.audit() == []


async def test_a_credit_limit_that_does_not_cover_the_balance_is_refused_alike(
    service: Service, dealer: ApiClient, postgres: str
):
    await service.change(dealer.tenant_id, credit_limit="50", balance="-40")
    async with no_errors(postgres):
        with pytest.raises(OperatorError, match="out of range"):
            await service.change(dealer.tenant_id, credit_limit="39.99")
        await service.change(dealer.tenant_id, credit_limit="40")


async def test_the_same_stock_loaded_twice_at_once_is_loaded_once(service: Service, postgres: str):
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
    text = stock_csv(200)
    async with no_errors(postgres):
        loads = [load_stock.load_stock(service.database, keys, "DEMO-STOCK", text, "test") for _ in range(4)]
        done = await asyncio.gather(*loads)
    assert sorted(one.loaded for one in done) == [0, 0, 0, 200]
    assert await service.audit() == []


async def test_refunds_of_one_order_asked_for_at_once_are_credited_once(
    service: Service, dealer: ApiClient, postgres: str
):
    order_no = (await dealer.order()).data["orderNo"]
    await dealer.delivered(order_no)
    async with no_errors(postgres):
        call = {"orderNo": order_no, "refundTransactionId": "r-once"}
        replies = await asyncio.gather(*[dealer.post("/esim/refund", call) for _ in range(8)])
    assert {reply.code for reply in replies} == {"000000"}
    assert len({reply.data["refundNo"] for reply in replies}) == 1
    assert await service.audit() == []
