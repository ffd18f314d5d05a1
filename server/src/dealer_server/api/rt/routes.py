"""Which operations does the RT face serve? Each with its request, and the AppKeys that may call it."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from dealer_server.api.routes import BoundRoute, Parts
from dealer_server.api.rt import account, calls, esims, orders
from dealer_server.api.rt.dialect import PREFIX
from esim_dealer.wire.vocabulary import Scope


class RtRoute(NamedTuple):
    path: str
    scope: Scope
    request: type[msgspec.Struct]
    handler: Callable[..., Awaitable[Any]]
    writes: bool = False


ROUTES = (
    RtRoute("balance/query", "read", calls.Empty, account.read_balance),
    RtRoute("package/list", "read", calls.PackageList, orders.list_packages),
    RtRoute("location/list", "read", calls.Empty, orders.list_locations),
    RtRoute("esim/order", "order", calls.Order, orders.place_order, writes=True),
    RtRoute("esim/query", "read", calls.Query, orders.query_esims),
    RtRoute("esim/topup", "order", calls.TopUp, orders.top_up, writes=True),
    RtRoute("esim/cancel", "money", calls.OneEsim, esims.cancel, writes=True),
    RtRoute("esim/revoke", "order", calls.OneEsim, esims.revoke, writes=True),
    RtRoute("esim/suspend", "order", calls.OneEsim, esims.suspend, writes=True),
    RtRoute("esim/unsuspend", "order", calls.OneEsim, esims.unsuspend, writes=True),
    RtRoute("esim/sendSms", "order", calls.SendSms, esims.send_sms, writes=True),
    RtRoute("webhook/save", "order", calls.SaveWebhook, account.save_webhook, writes=True),
    RtRoute("webhook/query", "read", calls.Empty, account.query_webhook),
    RtRoute("esim/usage/query", "read", calls.UsageQuery, esims.query_usage),
)


def table(parts: Parts) -> dict[bytes, BoundRoute]:
    """What the gateway runs, by the path as it is received."""
    return {
        f"{PREFIX}{route.path}".encode(): BoundRoute(
            decode=calls.decoder(route.request),
            run=functools.partial(route.handler, parts),
            path=f"{PREFIX}{route.path}",
            scope=route.scope,
            writes=route.writes,
        )
        for route in ROUTES
    }
