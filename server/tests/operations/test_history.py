"""Concurrent clients on one wallet: one order of events explains all answers."""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from support.api_client import ApiClient, Reply, Service
from support.money.refunds import bought, named, profiles
from support.money.wallet_history import NEVER, Call, Entry, Movement, Shown, faults
from support.patience import PATIENCE

CLIENTS, CALLS = 32, 12
PRICE = 18_000
BUSY = "900001"


# The checker


def ledger(*amounts: int) -> list[Entry]:
    """An opening balance, then orders 2, 3, … of these amounts."""
    balance, entries = 0, []
    for number, amount in enumerate((100, *amounts), 1):
        balance += amount
        entries.append(Entry(number, "ORDER_PAY" if number > 1 else "ADJUST", number, amount, balance))
    return entries


def paid(order: int, called: float, returned: float, amount: int = -10) -> Call:
    return Call("order", called, returned, Movement("ORDER_PAY", order, amount))


def saw(balance: int, called: float, returned: float) -> Call:
    return Call("balance", called, returned, balance=balance)


TWO = ledger(-10, -10)


def shown(called: float, returned: float, *versions: int) -> Call:
    return Call("statement", called, returned, entries=tuple(TWO[version - 1].shown for version in versions))


GOOD: list[list[Call]] = [
    [paid(2, 0, 1), paid(3, 2, 3)],
    [paid(2, 0, 5), paid(3, 0, 5), saw(100, 0, 5), saw(80, 0, 5)],
    [paid(2, 0, 2), paid(3, 1, 4), saw(90, 3, 4), saw(80, 4.5, 5)],
    [paid(2, 0, 2), paid(3, 1, NEVER), saw(90, 3, 4)],
    [paid(2, 0, 1), paid(3, 2, 3), paid(2, 4, 5)._replace(repeats=True)],
    [paid(2, 0, 1), paid(3, 2, 3), shown(2, 3, 2, 1)],
]
BAD: list[tuple[str, list[Call]]] = [
    ("does not fit", [paid(3, 0, 1), paid(2, 2, 3)]),
    ("does not fit", [paid(2, 0, 1), paid(3, 2, 3), saw(90, 4, 5)]),
    ("does not fit", [paid(2, 0, 9), paid(3, 0, 9), saw(80, 1, 2), saw(90, 3, 4)]),
    ("does not fit", [paid(2, 0, 9), paid(3, 0, 9), saw(85, 1, 2)]),
    ("before anybody asked", [paid(2, 0, 1), saw(80, 2, 3), paid(3, 4, 5)]),
    ("not booked", [paid(2, 0, 1), paid(3, 0, 1), paid(4, 0, 1)]),
    ("was booked as", [paid(2, 0, 1), paid(3, 0, 1, amount=-11)]),
    ("nobody asked", [paid(2, 0, 1)]),
    ("does not say", [paid(2, 0, 1), paid(3, 2, 3), shown(4, 5, 3, 1)]),
    ("does not fit", [paid(2, 0, 1), paid(3, 2, 3), shown(4, 5, 2, 1)]),
]


@pytest.mark.parametrize("calls", GOOD)
def test_a_consistent_history_is_accepted(calls: list[Call]):
    assert faults(TWO, calls) == []


@pytest.mark.parametrize(("why", "calls"), BAD)
def test_an_inconsistent_history_is_found(why: str, calls: list[Call]):
    assert why in str(faults(TWO, calls))


def test_a_ledger_with_a_gap_is_found():
    assert "does not follow" in str(faults([TWO[0], TWO[2]], []))
    assert "booked twice" in str(faults([*TWO, Entry(4, "ORDER_PAY", 3, 0, 80)], [paid(2, 0, 1), paid(3, 0, 1)]))


# The service


class Recorder:
    """A dealer's clients: what each called, when, and what it was told."""

    def __init__(self, dealer: ApiClient, orders: list[dict[str, Any]]):
        self.dealer = dealer
        self.orders = orders
        self.calls: list[Call] = []
        self.codes: set[str] = set()

    async def client(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(CALLS):
            await chance.choice([self.order, self.order, self.refund, self.refund, self.refund, self.cancel,
                                 self.balance, self.balance, self.statement])(chance)  # fmt: skip

    async def _asked(self, what: str, path: str, call: dict[str, Any], told: Callable[[Reply], dict[str, Any]]) -> None:
        """`told` reads the answer: what it says that was booked or seen, or that it promises nothing yet."""
        while True:
            called = time.monotonic()
            reply = await self.dealer.post(path, call)
            returned = time.monotonic()
            if reply.code != BUSY:  # then nothing was done
                break
        self.codes.add(reply.code)
        self.calls.append(Call(**({"what": what, "called": called, "returned": returned} | told(reply))))

    async def order(self, chance: random.Random) -> None:
        line = {"packageCode": "TEST-OK", "quantity": chance.randint(1, 3), "price": "1.80"}
        amount = PRICE * line["quantity"]
        call = {"transactionId": f"t-{secrets.token_hex(8)}", "amount": money.text(amount, "USD"), "items": [line]}

        def told(reply: Reply) -> dict[str, Any]:
            if reply.code == "200007":
                return {"balance": money.parse(reply.data["availableBalance"], "USD")}
            order_id = identity.order_id(reply.data["orderNo"])
            assert order_id is not None
            self.orders.append(reply.data)
            return {"wrote": Movement("ORDER_PAY", order_id, -amount)}

        await self._asked("order", "/esim/order", call, told)

    async def refund(self, chance: random.Random) -> None:
        order = chance.choice(self.orders)
        call: dict[str, Any] = {"orderNo": order["orderNo"]}
        if chance.random() < 0.7:
            call["items"] = named(order, {"profileId": chance.choice(profiles(order))["profileId"]})

        def told(reply: Reply) -> dict[str, Any]:
            if reply.code != "000000":
                return {}
            refund_id = identity.refund_id(reply.data["refundNo"])
            assert refund_id is not None
            wrote = Movement("REFUND", refund_id, money.parse(reply.data["refundAmount"], "USD"))
            if reply.data["status"] == "REFUNDING":
                return {"wrote": wrote, "returned": NEVER}
            return {"wrote": wrote, "repeats": reply.data["duplicate"]}

        await self._asked("refund", "/esim/refund", call, told)

    async def cancel(self, chance: random.Random) -> None:
        profile = chance.choice(profiles(chance.choice(self.orders)))
        await self._asked("cancel", "/esim/profile/cancel", {"profileId": profile["profileId"]}, lambda _: {})

    async def balance(self, chance: random.Random) -> None:
        await self._asked(
            "balance", "/account/balance", {}, lambda reply: {"balance": money.parse(reply.data["balance"], "USD")}
        )

    async def statement(self, chance: random.Random) -> None:
        def told(reply: Reply) -> dict[str, Any]:
            return {"entries": tuple(_shown(one) for one in reply.data["entries"])}

        await self._asked("statement", "/account/statement", {"pager": {"pageSize": 20}}, told)


def _shown(entry: dict[str, Any]) -> Shown:
    return Shown(int(entry["entryNo"]), entry["entryType"], _signed(entry["amount"]), _signed(entry["balanceAfter"]))


def _signed(text: str) -> int:
    amount = money.parse(text.removeprefix("-"), "USD")
    return -amount if text.startswith("-") else amount


@pytest.fixture
async def dealer(service: Service) -> AsyncIterator[ApiClient]:
    """A dealer who cannot buy all that its clients want."""
    async with service.client(await service.tenant(balance="150", qps=0)) as client:
        yield client


async def booked(service: Service, dealer: ApiClient) -> list[Entry]:
    """The dealer's ledger, once no refund of it is pending."""
    async with asyncio.timeout(PATIENCE), service.database.connection() as connection:
        while await connection.fetchval(
            "SELECT count(*) FROM refund WHERE tenant_id = $1 AND status = 'REFUNDING'", dealer.tenant_id
        ):
            await asyncio.sleep(0.02)
        rows = await connection.fetch(
            "SELECT version, entry_type, reference, amount, balance_after FROM ledger_entry WHERE tenant_id = $1"
            " ORDER BY version",
            dealer.tenant_id,
        )
    return [Entry(*row) for row in rows]


@pytest.mark.parametrize("seed", range(3))
async def test_answers_to_concurrent_clients_fit_one_order_of_events(service: Service, dealer: ApiClient, seed: int):
    orders = [await bought(dealer, package, 4) for package in ("TEST-OK", "TEST-ASYNC", "TEST-REJECT", "TEST-OK")]
    opened = [
        Call("order", 0, 0, Movement("ORDER_PAY", identity.order_id(one["orderNo"]) or 0, -4 * PRICE)) for one in orders
    ]
    told = Recorder(dealer, orders)
    await asyncio.gather(*(told.client(1_000 * seed + number) for number in range(CLIENTS)))
    assert faults(await booked(service, dealer), [*opened, *told.calls]) == []
    assert {"000000", "200003"} <= told.codes <= {"000000", "200003", "200004", "200007"}
    assert await service.audit() == []
