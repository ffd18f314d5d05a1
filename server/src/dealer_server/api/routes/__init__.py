"""Which operations are served? One module per noun; each route declares its handler and its words together.

The examples of a module stand beside it, as JSON. docs/guides/add-an-operation.md says what a new operation needs.
"""

import functools
from typing import Any

import msgspec

from dealer_server.api.routes import account, orders, packages, profiles, recharges, refunds, topups, webhooks
from dealer_server.api.routes.route import BoundRoute, Parts, Route
from esim_dealer.wire import calls
from esim_dealer.wire.operations import OPERATIONS

MODULES = (account, packages, orders, recharges, refunds, profiles, topups, webhooks)


def _declared() -> tuple[Route[Any, Any], ...]:
    """The routes of all modules, in the order of the contract. Raises LookupError where an operation has no route."""
    declared = {
        value.operation: value for module in MODULES for value in vars(module).values() if isinstance(value, Route)
    }
    if missing := [operation.path for operation in OPERATIONS if operation not in declared]:
        raise LookupError(f"no route for {', '.join(missing)}")
    return tuple(declared[operation] for operation in OPERATIONS)


ROUTES = _declared()


def served(*, test_environment: bool) -> tuple[Route[Any, Any], ...]:
    """The routes of this environment."""
    return tuple(route for route in ROUTES if test_environment or not route.operation.test_only)


def table(routes: tuple[Route[Any, Any], ...], parts: Parts) -> dict[bytes, BoundRoute]:
    """What the gateway runs, by the path as it is received."""
    return {
        f"{calls.PREFIX}{route.path}".encode(): BoundRoute(
            decode=msgspec.json.Decoder(route.operation.request).decode,
            run=functools.partial(route.handler, parts),
            path=route.path,
            scope=route.operation.scope,
            writes=route.operation.writes,
        )
        for route in routes
    }


__all__ = ["MODULES", "ROUTES", "BoundRoute", "Parts", "Route", "served", "table"]
