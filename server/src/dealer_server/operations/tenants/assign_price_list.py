"""Which price list has a dealer? One or none; with one it has no markup of its own."""

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import price_changes
from dealer_server.operations.tenants.set_terms import locked_tenant
from dealer_server.rules.money import percent


async def assign(database: Database, tenant_id: int, price_list_id: int | None, author: str, clock: Clock) -> None:
    """None takes the list away: packages cost their own price then. A markup of the dealer's own ends with a list.
    Prices of the dealer's own stay. Raises OperatorError."""
    await database.run(lambda connection: assign_within(connection, tenant_id, price_list_id, author, clock))


async def assign_within(
    connection: Connection, tenant_id: int, price_list_id: int | None, author: str, clock: Clock, *, told: bool = True
) -> None:
    """The same in a transaction that has begun. `told`: the dealer is told of the prices that changed."""
    if price_list_id is not None and not await store.price_list.lock(connection, price_list_id, shared=True):
        raise OperatorError("this price list was removed: choose another one", "price_list")
    tenant = await locked_tenant(connection, tenant_id)
    before, was = await store.tenant.load_prices(connection, tenant_id), await _name(connection, tenant_id)
    if before.price_list_id == price_list_id:
        return
    await store.price_list.assign(connection, tenant_id, price_list_id, clock())
    after, now = await store.tenant.load_prices(connection, tenant_id), await _name(connection, tenant_id)
    if told:
        await price_changes.tell_dealer(connection, tenant_id, before, after, clock())
    await store.tenant.touch(connection, tenant_id)
    markup, left = percent.number(tenant.markup_basis_points), percent.number(after.markup_basis_points)
    await record_change(
        connection,
        author,
        "tenant.price_list",
        tenant_id,
        {},
        {"priceList": was, "markup": markup},
        {"priceList": now, "markup": left},
    )


async def _name(connection: Connection, tenant_id: int) -> str | None:
    found = await store.price_list.of_dealer(connection, tenant_id)
    return found[1] if found else None
