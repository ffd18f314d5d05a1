"""Which path runs which operation? One row each; OpenAPI is made from the same rows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, MasterKeys
from dealer_server.operations.cache import Cache, Caller
from dealer_server.operations.catalogue.list_packages import parse_filter
from dealer_server.operations.orders.list import list_orders
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.operations.orders.query import OrderLookup, OrderQueryBatcher, query_order
from dealer_server.operations.profiles.list import list_profiles
from dealer_server.operations.profiles.void import VoidBatcher
from dealer_server.operations.refunds.request import RefundBatcher
from dealer_server.operations.topups import request as topups
from dealer_server.operations.wallets.list_entries import list_entries
from dealer_server.operations.wallets.query_balance import BalanceBatcher, query_balance
from dealer_server.operations.webhooks import endpoint
from dealer_server.rules.delivery.endpoint import Policy
from dealer_server.rules.orders import order, snapshot
from dealer_server.rules.orders.order import Placed, Repeated
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.console.api_log import Step
from dealer_server.webhooks import test_event
from dealer_server.webhooks.outbound import Outbound
from esim_dealer.wire import calls, envelope
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import ResultCode

Handler = Callable[[Caller, Any], Awaitable[bytes]]
encode = envelope.encoder.encode


class Operation(msgspec.Struct, frozen=True):
    """One row: a path below /open-api/v1, what it takes, what it answers, and what runs it.

    `run` gives the encoded `data`. `writes`: a lost database may have done it. `refusals` are the result codes it can
    give beyond those of every call.
    """

    path: str
    summary: str
    takes: type
    answers: type
    run: Handler
    writes: bool = False
    refusals: tuple[ResultCode, ...] = ()
    decode: Callable[[bytes], Any] = lambda body: body

    @property
    def raw_path(self) -> bytes:
        return f"{calls.PREFIX}{self.path}".encode()


class Parts(msgspec.Struct, frozen=True):
    """What the operations work with. `reads` is for what only reads and may take long. `managed` is told how far a
    dealer has come; `advance` is there in the test environment only."""

    database: Database
    reads: Database
    cache: Cache
    orders: OrderBatcher
    queries: OrderQueryBatcher
    accounts: BalanceBatcher
    data_keys: DataKeys
    links: Links
    clock: Clock
    callbacks: Policy
    master_keys: MasterKeys
    outbound: Outbound
    refunds: RefundBatcher
    voids: VoidBatcher
    managed: Callable[[int, Step], None]
    usage: Callable[[int, calls.ProfileUsage], Awaitable[calls.Usage]]
    advance: Callable[[int, calls.AdvanceProfile], Awaitable[Profile]] | None


def operations(parts: Parts) -> tuple[Operation, ...]:
    """Every operation of the interface."""
    return tuple(msgspec.structs.replace(row, decode=msgspec.json.Decoder(row.takes).decode) for row in _rows(parts))


def _others() -> Awaitable[None]:
    """Lets the calls that came together be read before one of them is answered from memory: the loop then polls once
    for all of them, which is 1.6 times as many a second. What waits for a database is answered together anyway."""
    return asyncio.sleep(0)


def table(rows: Iterable[Operation]) -> dict[bytes, Operation]:
    return {row.raw_path: row for row in rows}


def _rows(parts: Parts) -> Iterable[Operation]:
    cache, links = parts.cache, parts.links

    async def health(caller: Caller, _: calls.Empty) -> bytes:
        await _others()
        parts.managed(caller.tenant_id, "HEALTH")
        return encode(calls.Health(status="UP", tenant_id=str(caller.tenant_id), client_name=caller.access.name))

    async def account_balance(caller: Caller, _: calls.Empty) -> bytes:
        parts.managed(caller.tenant_id, "BALANCE")
        return encode(await query_balance(parts.accounts, caller.tenant_id))

    async def region_list(caller: Caller, call: calls.RegionList) -> bytes:
        await _others()
        return cache.catalogue.regions(caller.access.prices, call)

    async def package_list(caller: Caller, call: calls.PackageList) -> bytes:
        wanted = parse_filter(call)
        await _others()
        prices = caller.access.prices
        if call.catalog_version and call.catalog_version == cache.catalogue.version_for(prices):
            return cache.catalogue.not_modified(prices, wanted)
        return cache.catalogue.page(prices, wanted)

    async def place(caller: Caller, call: calls.PlaceOrder) -> bytes:
        basket = cache.catalogue.price_lines(call, caller.access.prices)
        decision = await parts.orders.submit(order.order_request(caller.tenant_id, call, basket))
        if isinstance(decision, Placed):
            return encode(snapshot.of(order.as_placed(decision), links, duplicate=False))
        assert isinstance(decision, Repeated)
        original = await parts.queries.submit(OrderLookup(caller.tenant_id, decision.order_id, None))
        assert original is not None
        return encode(snapshot.of(original, links, duplicate=True))

    async def query(caller: Caller, call: calls.QueryOrder) -> bytes:
        return encode(snapshot.of(await query_order(parts.queries, caller.tenant_id, call), links))

    async def order_list(caller: Caller, call: calls.OrderList) -> bytes:
        return encode(await list_orders(parts.reads, parts.data_keys, links, caller.tenant_id, call))

    async def profile_list(caller: Caller, call: calls.ProfileList) -> bytes:
        return encode(await list_profiles(parts.reads, parts.data_keys, links, caller.tenant_id, call))

    async def webhook_set(caller: Caller, call: calls.SetWebhook) -> bytes:
        return encode(
            await endpoint.set_webhook(parts.database, parts.callbacks, caller.tenant_id, call, parts.clock())
        )

    async def webhook_query(caller: Caller, _: calls.Empty) -> bytes:
        return encode(await endpoint.webhook_state(parts.reads, caller.tenant_id))

    async def webhook_test(caller: Caller, _: calls.Empty) -> bytes:
        currency = caller.access.prices.currency
        tried = await test_event.send(
            parts.database, parts.master_keys, parts.outbound, caller.tenant_id, currency, parts.clock()
        )
        return encode(tried.test)

    async def delivery_list(caller: Caller, call: calls.DeliveryList) -> bytes:
        return encode(await endpoint.list_deliveries(parts.reads, caller.tenant_id, call))

    async def delivery_resend(caller: Caller, call: calls.ResendDelivery) -> bytes:
        return encode(await endpoint.resend(parts.database, caller.tenant_id, call, parts.clock()))

    async def refund_order(caller: Caller, call: calls.RefundOrder) -> bytes:
        return encode(await parts.refunds.refund(caller.tenant_id, call))

    async def void_profile(caller: Caller, call: calls.VoidProfile) -> bytes:
        return encode(await parts.voids.void(caller.tenant_id, call))

    async def profile_usage(caller: Caller, call: calls.ProfileUsage) -> bytes:
        return encode(await parts.usage(caller.tenant_id, call))

    async def statement_of(caller: Caller, call: calls.Statement) -> bytes:
        currency = caller.access.prices.currency
        return encode(await list_entries(parts.reads, caller.tenant_id, currency, call))

    async def request_topup(caller: Caller, call: calls.RequestTopup) -> bytes:
        return encode(await topups.request_topup(parts.database, caller.tenant_id, call, parts.clock()))

    async def query_topup(caller: Caller, call: calls.QueryTopup) -> bytes:
        return encode(await topups.query_topup(parts.reads, caller.tenant_id, call))

    async def cancel_topup(caller: Caller, call: calls.CancelTopup) -> bytes:
        return encode(await topups.cancel_topup(parts.database, caller.tenant_id, call, parts.clock()))

    empty, bought = calls.Empty, Snapshot
    refused: tuple[ResultCode, ...] = (
        "310402",
        "310241",
        "200014",
        "200008",
        "200015",
        "200005",
        "200006",
        "200020",
        "200011",
        "200007",
    )
    yield Operation("/health", "Verify signing and connectivity", empty, calls.Health, health)
    yield Operation("/account/balance", "Read the BALANCE wallet", empty, calls.Balance, account_balance)
    yield Operation("/package/list", "List sellable packages", calls.PackageList, calls.Packages, package_list)
    yield Operation("/region/list", "List regions with packages", calls.RegionList, calls.Regions, region_list)
    yield Operation("/esim/order", "Create an order", calls.PlaceOrder, bought, place, True, refused)
    yield Operation("/esim/query", "Query an order", calls.QueryOrder, bought, query, False, ("310272",))
    yield Operation("/esim/order/list", "List orders", calls.OrderList, calls.Orders, order_list)
    yield Operation(
        "/esim/profile/list", "List allocated eSIM profiles", calls.ProfileList, calls.Profiles, profile_list
    )
    refusals: tuple[ResultCode, ...] = ("310272", "310402", "310274", "310403", "000111", "200004", "200003")
    yield Operation("/esim/refund", "Refund", calls.RefundOrder, calls.Refund, refund_order, True, refusals)
    for path, summary in (("cancel", "Cancel a profile"), ("revoke", "Revoke a profile")):
        yield Operation(
            f"/esim/profile/{path}",
            summary,
            calls.VoidProfile,
            calls.Voided,
            void_profile,
            True,
            ("000111", "310404", "200004", "200002"),
        )
    yield Operation(
        "/esim/profile/usage",
        "Read a profile's usage",
        calls.ProfileUsage,
        calls.Usage,
        profile_usage,
        False,
        ("000111", "310404", "200022", "200010"),
    )
    yield Operation("/account/statement", "Read the ledger", calls.Statement, calls.Entries, statement_of)
    yield Operation(
        "/account/topup",
        "Ask for a top-up",
        calls.RequestTopup,
        calls.Topup,
        request_topup,
        True,
        ("200015", "310402", "200021"),
    )
    yield Operation(
        "/account/topup/query", "Query a top-up", calls.QueryTopup, calls.Topup, query_topup, False, ("310405",)
    )
    yield Operation(
        "/account/topup/cancel",
        "Withdraw a top-up",
        calls.CancelTopup,
        calls.Topup,
        cancel_topup,
        True,
        ("310405", "200002"),
    )
    yield Operation(
        "/webhook/set", "Set the callback URL", calls.SetWebhook, calls.Webhook, webhook_set, True, ("310501",)
    )
    yield Operation("/webhook/query", "Read the callback URL and its state", empty, calls.WebhookState, webhook_query)
    yield Operation("/webhook/test", "Send a sample event", empty, calls.WebhookTest, webhook_test, False, ("200002",))
    yield Operation(
        "/webhook/delivery/list", "List webhook deliveries", calls.DeliveryList, calls.Deliveries, delivery_list
    )
    yield Operation(
        "/webhook/delivery/resend",
        "Send a delivery again",
        calls.ResendDelivery,
        calls.Delivery,
        delivery_resend,
        True,
        ("310272", "200002"),
    )
    if (advance := parts.advance) is not None:

        async def advance_profile(caller: Caller, call: calls.AdvanceProfile) -> bytes:
            return encode(await advance(caller.tenant_id, call))

        yield Operation(
            "/test/profile/advance",
            "Move a profile through its life",
            calls.AdvanceProfile,
            Profile,
            advance_profile,
            True,
            ("000111", "310404", "200022", "200002", "200010", "200004"),
        )
