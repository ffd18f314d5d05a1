"""kill -9 of API and worker while dealers buy from stock, from stock with a supplier behind it, and from suppliers,
give back and cancel: the dealers' own memory, the ledger, the stock, the supplier's book and the webhooks agree."""

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pytest

from dealer_server.failpoints import Failpoint
from dealer_server.operations.catalogue import load_stock
from dealer_server.rules.orders import identity
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.store.tenants import data_key
from support import trading
from support.buying_dealers import MAJOR, batched
from support.faults import kills, purchase_kills, refund_kills
from support.faults.kills import anywhere, survives
from support.faults.trading_dealers import CANCEL, REFUND, TradingDealers
from support.rt_family import Upstream, running_upstream
from support.store_fixture import stock_csv
from support.supplier_setup import Source, hop, set_up
from support.trading import Trading

STOCKED, BACKED = "DEMO-STOCK", "TEST-DELAY"  # from stock alone; from stock, or else from a supplier that is called
MADE_BY_UPSTREAM = "8901000%"  # its ICCIDs
SERVE_POINTS = [*kills.SERVE_POINTS, *refund_kills.SERVE_POINTS]
WORK_POINTS = [*kills.WORK_POINTS, *refund_kills.WORK_POINTS, *purchase_kills.POINTS]
LINES = {("TEST-OK", 1): 6, ("TEST-PARTIAL", 3): 1, ("TEST-ASYNC", 2): 3, ("TEST-REJECT", 1): 1, (STOCKED, 2): 2,
         (BACKED, 2): 3}  # fmt: skip
SHOWN = 100  # orders that are asked for one by one at the end
CODES = 6  # new ones for BACKED after each death of an API: three orders find stock, the others do not


def any_line() -> tuple[str, int]:
    return random.choices(list(LINES), list(LINES.values()))[0]


@dataclass
class Trade(Trading):
    upstream: Upstream | None = None
    loaded: int = 100_000  # the number of the next code

    @property
    def customers(self) -> TradingDealers:
        assert isinstance(self.buyers, TradingDealers)
        return self.buyers

    async def check(self) -> None:
        await super().check()
        await self.restock()

    async def restock(self) -> None:
        """Some orders find stock, some do not."""
        async with self.database.connection() as connection:
            keys = await data_key.load(connection, self.service.settings.master_keys)
        report = await load_stock.load_stock(self.database, keys, BACKED, stock_csv(CODES, self.loaded), "test")
        assert report.loaded == CODES
        self.loaded += CODES

    async def leases_run_out(self) -> None:
        await super().leases_run_out()
        for table in ("purchase", "void_request", "profile_life"):
            await self.rows(
                f"UPDATE {table} SET due_at = now() WHERE due_at IS NOT NULL AND claim IS NOT NULL AND claim <> 0"
            )

    async def all_is_well(self, url: str) -> None:
        customers = self.customers
        await customers.settle(url)
        await self.check()
        await customers.all_again(url, 200)
        # In this order there is always something that becomes less: what waits longest is asked for first, so that all
        # that is planned is bought before the first of it is delivered.
        await self.becomes_empty("order_item WHERE supplier LIKE 'rt:%' AND due_at IS NOT NULL")
        await self.becomes_empty("purchase WHERE state = 'PLANNED'")
        await self.rows("UPDATE purchase SET due_at = now() WHERE state IN ('UNKNOWN', 'PENDING')")
        await self.becomes_empty("profile WHERE lifecycle_status = 'PENDING'")
        await self.becomes_empty("void_request WHERE outcome IS NULL")
        await self.becomes_empty("refund WHERE status = 'REFUNDING'")
        await self.becomes_empty("webhook_delivery WHERE state NOT IN ('DELIVERED', 'SUPERSEDED', 'SKIPPED')")
        assert {one.status for one in customers.replies} <= {503}
        await self.check()
        await self._refunds_are_what_was_told()
        await self._cancelled_stays_cancelled()
        await self._the_money_is_right(url)
        await self._every_esim_is_held_once()
        await self._every_credit_was_told_once()
        await self._stock_is_what_is_left()

    async def _refunds_are_what_was_told(self) -> None:
        rows = await self.rows(
            "SELECT tenant_id, refund_transaction_id, refund_id, status, amount, credited FROM refund"
        )
        found = {(row[0], row[1]): row[2:] for row in rows}
        assert len(found) == len(rows)
        for act in self.customers.acts:
            if act.path != REFUND:
                continue
            if act.refused:
                assert act.key not in found, ("refused, and done", act)
                continue
            assert act.told is not None
            refund_id, status, amount, credited = found[act.key]
            assert isinstance(refund_id, int) and act.told["refundNo"] == identity.refund_no(refund_id)
            assert Decimal(act.told["refundAmount"]) * MAJOR == amount
            assert status == "REFUNDED" or act.told["status"] != "REFUNDED"
            assert (credited == 0) == (status == "REJECTED"), act

    async def _cancelled_stays_cancelled(self) -> None:
        for acts in batched([act for act in self.customers.acts if act.path == CANCEL and act.told], 500):
            ids = [act.call["profileId"] for act in acts]
            rows = await self.rows("SELECT count(*) FROM profile WHERE profile_id = ANY($1) AND NOT cancelled", ids)
            assert rows == [(0,)]

    async def _the_money_is_right(self, url: str) -> None:
        """By what dealers are shown: the balance is what was put in, less the orders, plus what was given back."""
        given_back = Counter[str]()
        for order_id, credited in await self.rows("SELECT order_id, sum(credited)::bigint FROM refund GROUP BY 1"):
            assert isinstance(order_id, int) and isinstance(credited, int)
            given_back[identity.order_no(order_id)] = credited
        placed = [one for one in self.customers.purchases if one.order_no is not None]
        for client in self.customers.clients:
            client.url = url
            mine = [one for one in placed if one.client is client]
            paid = sum(Decimal(one.call["amount"]) * MAJOR - given_back[one.order_no or ""] for one in mine)
            balance = Decimal((await client.post("/account/balance")).data["balance"])
            assert balance * MAJOR == self.customers.opening - paid
        for one in random.sample(placed, min(SHOWN, len(placed))):
            order = (await one.client.post("/esim/query", {"orderNo": one.order_no})).data
            assert Decimal(str(order["refundAmount"])) * MAJOR == given_back[order["orderNo"]]

    async def _every_esim_is_held_once(self) -> None:
        [(profiles, iccids, wanted)] = await self.rows(
            "SELECT count(*), count(DISTINCT iccid), (SELECT sum(quantity) FROM order_item) FROM profile"
        )
        assert profiles == iccids == wanted
        assert self.upstream is not None
        bought = sorted(one.iccid for one in self.upstream.book.esims())
        held = await self.rows("SELECT iccid FROM profile WHERE iccid LIKE $1 ORDER BY iccid", MADE_BY_UPSTREAM)
        assert [row[0] for row in held] == bought, "bought and not held, or held twice"

    async def _every_credit_was_told_once(self) -> None:
        """And a delivery has the same bytes always."""
        told, said = defaultdict[str, set[str]](set), defaultdict[str, list[tuple[bytes, int]]](list)
        for request in self.receiver.requests:
            delivery_id = request.headers["rt-delivery-id"]
            said[delivery_id].append((request.body, request.number))
            if request.event == "REFUND_COMPLETED":
                told[request.json["orderNo"]].add(delivery_id)
        rows = await self.rows("SELECT order_id, count(*) FROM refund WHERE status = 'REFUNDED' GROUP BY 1")
        credited = {identity.order_no(row[0]): row[1] for row in rows if isinstance(row[0], int)}
        assert {order_no: len(ids) for order_no, ids in told.items()} == credited
        for requests in said.values():
            assert len({body for body, _ in requests}) == 1
            assert len({number for _, number in requests}) == len(requests) <= 8

    async def _stock_is_what_is_left(self) -> None:
        """Nothing waits for a code now: a code is taken by the profile that has it, or it can be sold."""
        await self.restock()
        [(taken, had)] = await self.rows(
            "SELECT count(taken_by), count(p.profile_id) FROM stock_profile s LEFT JOIN profile p"
            " ON p.tenant_id = s.taken_tenant_id AND p.profile_id = s.taken_by AND p.iccid = s.iccid"
        )
        assert taken == had
        assert await self.service.audit() == []


@pytest.fixture
async def trade(database_url: str) -> AsyncIterator[Trade]:
    async with trading.opened(database_url) as opened, running_upstream() as upstream:
        await set_up(
            database_url,
            [Source("rt:far", "rt_upstream", upstream.settings)],
            {BACKED: [Hop("stock", BACKED, None, None), hop("rt:far", "JC016")]},
        )
        customers = TradingDealers(opened.buyers.clients, opened.buyers.opening, any_line)
        yield Trade(opened.url, opened.service, customers, opened.receiver, upstream=upstream)


def _shuffled(points: Sequence[Failpoint], count: int) -> list[Failpoint]:
    chosen = list(anywhere(points, count))
    random.shuffle(chosen)
    return chosen


async def test_orders_and_refunds_survive_some_kills(trade: Trade):
    await trade.restock()
    await survives(trade, [Failpoint("refund.written")], [Failpoint("void.answered"), Failpoint("refund.settled")])
    assert trade.kills.total() == 3


@pytest.mark.soak
async def test_orders_and_refunds_survive_a_hundred_kills(trade: Trade):
    await trade.restock()
    await survives(trade, _shuffled(SERVE_POINTS, 50), _shuffled(WORK_POINTS, 50), buyers=16)
    print(f"\n{trade.kills.total()} kills: {dict(trade.kills)}; {len(trade.buyers.purchases)} orders")
    assert trade.kills.total() == 100
