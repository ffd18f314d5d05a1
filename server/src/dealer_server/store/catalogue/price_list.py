"""Price lists with their exceptions, who has them, and the costs that they count from."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.rules.orders.pricing import OwnPrice
from dealer_server.rules.price_lists.price_list import Cost, PriceListTerms

_LISTS = """
SELECT price_list_id, name, basis, markup_basis_points, updated_at,
    (SELECT array_agg((e.package_code, e.price, e.updated_at) ORDER BY e.package_code)
        FROM price_list_exception e WHERE e.price_list_id = l.price_list_id) AS exceptions
FROM price_list l
"""


class Listed(NamedTuple):
    """A list among others. `dealers`: how many have it."""

    price_list_id: int
    name: str
    basis: str
    markup_basis_points: int
    exceptions: int
    dealers: int
    updated_at: datetime


class Dealer(NamedTuple):
    """A dealer that has a list. `own`: how many packages have a price of the dealer's own."""

    tenant_id: int
    name: str
    currency: str
    status: str
    own: int


async def load(connection: Connection, ids: Collection[int] | None = None) -> list[PriceListTerms]:
    """These lists, None: all, by name."""
    rows = await connection.fetch(
        f"{_LISTS} WHERE $1::bigint[] IS NULL OR price_list_id = ANY($1::bigint[]) ORDER BY name",
        None if ids is None else list(ids),
    )
    return [
        PriceListTerms(
            row["price_list_id"],
            row["name"],
            row["basis"],
            row["markup_basis_points"],
            row["updated_at"],
            {code: OwnPrice(price, at) for code, price, at in row["exceptions"] or ()},
        )
        for row in rows
    ]


async def find(connection: Connection, name: str) -> int | None:
    """The id of the list of this name."""
    return await connection.fetchval("SELECT price_list_id FROM price_list WHERE name = $1", name)


async def lock(connection: Connection, price_list_id: int, *, shared: bool = False) -> bool:
    """Locks a list until the transaction ends; `shared`: against its removal alone. False where there is none."""
    mode = "KEY SHARE" if shared else "UPDATE"
    return bool(
        await connection.fetchval(f"SELECT true FROM price_list WHERE price_list_id = $1 FOR {mode}", price_list_id)
    )


async def costs(connection: Connection, package_codes: Collection[str] | None = None) -> dict[str, Cost]:
    """What the first supplier of each of these packages asks, as far as it is known; None: of all."""
    rows = await connection.fetch(
        "SELECT package_code, agreed_cost, cost, cost_currency, agreed_at FROM route"
        " WHERE position = 0 AND cost IS NOT NULL"
        " AND ($1::text[] IS NULL OR package_code = ANY($1::text[]))",
        None if package_codes is None else list(package_codes),
    )
    return {row["package_code"]: Cost(*list(row)[1:]) for row in rows}


async def create(connection: Connection, name: str, basis: str, markup_basis_points: int, now: datetime) -> int | None:
    """The new id; None where a list has this name."""
    return await connection.fetchval(
        "INSERT INTO price_list (name, basis, markup_basis_points, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)"
        " ON CONFLICT (name) DO NOTHING RETURNING price_list_id",
        name,
        basis,
        markup_basis_points,
        now,
    )


async def update(
    connection: Connection, price_list_id: int, name: str, basis: str, markup_basis_points: int, now: datetime
) -> None:
    """The name must be free. Where it alone changes, no price does."""
    await connection.execute(
        "UPDATE price_list SET name = $2, basis = $3, markup_basis_points = $4,"
        " updated_at = CASE WHEN (basis, markup_basis_points) = ($3, $4) THEN updated_at ELSE $5 END"
        " WHERE price_list_id = $1",
        price_list_id,
        name,
        basis,
        markup_basis_points,
        now,
    )


async def put_exceptions(
    connection: Connection, price_list_id: int, prices: Mapping[str, int | None], now: datetime
) -> None:
    """None: not on sale. The packages must exist."""
    await connection.execute(
        "INSERT INTO price_list_exception AS e (price_list_id, package_code, price, updated_at)"
        " SELECT $1, code, price, $4 FROM unnest($2::text[], $3::bigint[]) AS given(code, price)"
        " ON CONFLICT (price_list_id, package_code) DO UPDATE SET price = excluded.price, updated_at = $4"
        " WHERE e.price IS DISTINCT FROM excluded.price",
        price_list_id,
        list(prices),
        list(prices.values()),
        now,
    )


async def remove_exceptions(
    connection: Connection, price_list_id: int, package_codes: Sequence[str], now: datetime
) -> None:
    """All prices of the list that follow its markup count as changed from now on, since nothing else tells dealers who
    mirror the catalogue."""
    keys = (price_list_id, list(package_codes))
    if is_distributed(connection):  # which changes a table of its own and one of every node one after the other
        if await connection.fetch(f"{_REMOVED} RETURNING 1", *keys):
            await connection.execute("UPDATE price_list SET updated_at = $2 WHERE price_list_id = $1", keys[0], now)
        return
    await connection.execute(
        f"WITH removed AS ({_REMOVED} RETURNING 1)"
        " UPDATE price_list SET updated_at = $3 WHERE price_list_id = $1 AND EXISTS (SELECT FROM removed)",
        *keys,
        now,
    )


_REMOVED = "DELETE FROM price_list_exception WHERE price_list_id = $1 AND package_code = ANY($2::text[])"


async def remove(connection: Connection, price_list_id: int) -> None:
    """Of a list that no dealer has."""
    await connection.execute("DELETE FROM price_list WHERE price_list_id = $1", price_list_id)


async def assign(connection: Connection, tenant_id: int, price_list_id: int | None, now: datetime) -> None:
    """A dealer with a list has no markup of its own."""
    await connection.execute(
        "UPDATE tenant SET price_list_id = $2, markup_updated_at = $3,"
        " markup_basis_points = CASE WHEN $2::bigint IS NULL THEN markup_basis_points ELSE 0 END WHERE tenant_id = $1",
        tenant_id,
        price_list_id,
        now,
    )


async def of_dealer(connection: Connection, tenant_id: int) -> tuple[int, str] | None:
    """(id, name) of the list of a dealer."""
    row = await connection.fetchrow(
        "SELECT price_list_id, l.name FROM tenant t JOIN price_list l USING (price_list_id) WHERE t.tenant_id = $1",
        tenant_id,
    )
    return (row["price_list_id"], row["name"]) if row else None


async def listed(connection: Connection) -> list[Listed]:
    """By name."""
    rows = await connection.fetch(
        "SELECT price_list_id, name, basis, markup_basis_points,"
        " (SELECT count(*) FROM price_list_exception e WHERE e.price_list_id = l.price_list_id)::int AS exceptions,"
        " (SELECT count(*) FROM tenant t WHERE t.price_list_id = l.price_list_id)::int AS dealers, updated_at"
        " FROM price_list l ORDER BY lower(name), name"
    )
    return [Listed(**row) for row in rows]


class Payer(NamedTuple):
    """An active dealer. `price_list_id`: None without a list."""

    tenant_id: int
    name: str
    price_list_id: int | None


async def payers(connection: Connection) -> list[Payer]:
    """All active dealers, by name."""
    rows = await connection.fetch(
        "SELECT tenant_id, name, price_list_id FROM tenant WHERE status = 'ACTIVE' ORDER BY lower(name), tenant_id"
    )
    return [Payer(**row) for row in rows]


async def dealers(connection: Connection, price_list_id: int, limit: int) -> list[Dealer]:
    """Who has a list, by tenantId."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name, w.currency, t.status,"
        " (SELECT count(*) FROM price p WHERE p.tenant_id = w.tenant_id)::int AS own"
        " FROM tenant t JOIN wallet w USING (tenant_id) WHERE t.price_list_id = $1 ORDER BY t.tenant_id LIMIT $2",
        price_list_id,
        limit,
    )
    return [Dealer(**row) for row in rows]
