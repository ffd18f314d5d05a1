"""Suppliers that are called over the network: settings, status, health, routes, ICCID ranges and totals."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values, columns_of
from dealer_server.db.sealing import DataKeys, supplier_context
from dealer_server.db.session import Session
from dealer_server.store.suppliers.purchase import Hop, Key


class Supplier(NamedTuple):
    """`settings` is the kind's JSON document, unsealed: it holds secrets. `event_token` is the secret part of the
    address that receives its events. `paused_reason`: why a worker paused it, None where an operator did."""

    code: str
    kind: str
    status: str
    settings: bytes
    event_token: str
    updated_at: datetime
    paused_reason: str | None


class Totals(NamedTuple):
    """A supplier's number of purchases by state, and by currency, in ten-thousandths, the sum of their costs (with what
    was written off) and the sum of what dealers paid."""

    states: dict[str, int]
    cost: dict[str, int]
    sold: dict[str, int]


class Parked(NamedTuple):
    """A purchase whose outcome an operator has to find out. `recharges`: the eSIM that it recharges."""

    tenant_id: int
    profile_id: int
    position: int
    order_id: int
    unit_key: str
    supplier: str
    step: str
    supplier_ref: str | None
    planned_iccid: str | None
    reason: str | None
    unknown_since: datetime | None
    recharges: int | None

    @property
    def key(self) -> Key:
        return self.tenant_id, self.profile_id, self.position


async def load(connection: Connection | Session, keys: DataKeys) -> list[Supplier]:
    """Every supplier, by code."""
    rows = await connection.fetch(f"SELECT {columns_of(Supplier)} FROM supplier ORDER BY code")
    return [
        sealed._replace(settings=keys.open(sealed.settings, supplier_context(sealed.code)))
        for sealed in as_values(Supplier, rows)
    ]


async def lock(connection: Connection, keys: DataKeys, code: str) -> Supplier | None:
    """One supplier, locked until the transaction ends; None: there is none."""
    row = await connection.fetchrow(
        f"SELECT {columns_of(Supplier)} FROM supplier WHERE code = $1 FOR NO KEY UPDATE", code
    )
    if row is None:
        return None
    sealed = Supplier(**row)
    return sealed._replace(settings=keys.open(sealed.settings, supplier_context(code)))


async def codes(connection: Connection | Session) -> list[str]:
    return [row["code"] for row in await connection.fetch("SELECT code FROM supplier ORDER BY code")]


async def kinds(connection: Connection) -> dict[str, str]:
    """The kind of each supplier, by its code."""
    return {row["code"]: row["kind"] for row in await connection.fetch("SELECT code, kind FROM supplier")}


async def version(connection: Connection | Session) -> str:
    """A text that differs whenever any supplier was changed."""
    [row] = await connection.fetch(
        "SELECT coalesce(string_agg(code || updated_at, ' ' ORDER BY code), '') AS version FROM supplier"
    )
    return row["version"]


async def put(connection: Connection, keys: DataKeys, code: str, kind: str, settings: bytes, token: str) -> None:
    """Adds a supplier, or replaces the settings of one, whose token stays."""
    await connection.execute(
        "INSERT INTO supplier (code, kind, settings, event_token, updated_at)"
        " VALUES ($1, $2, $3, $4, now()) ON CONFLICT (code) DO UPDATE"
        " SET kind = excluded.kind, settings = excluded.settings, updated_at = excluded.updated_at",
        code,
        kind,
        keys.seal(settings, supplier_context(code)),
        token,
    )


async def add(connection: Connection, keys: DataKeys, code: str, kind: str, settings: bytes, token: str) -> bool:
    """False, and nothing is written, where there is one of this code."""
    rows = await connection.fetch(
        "INSERT INTO supplier (code, kind, settings, event_token) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
        " RETURNING 1",
        code,
        kind,
        keys.seal(settings, supplier_context(code)),
        token,
    )
    return bool(rows)


async def remove(connection: Connection, code: str) -> None:
    """Lock it first, and see that it is not `used`."""
    await connection.execute("DELETE FROM supplier_health WHERE code = $1", code)
    await connection.execute("DELETE FROM supplier WHERE code = $1", code)


async def use_of(connection: Connection, code: str) -> str | None:
    """What stands in the way of its removal; None: nothing was ever bought or planned there."""
    # SELECT 1: Citus does not carry rows without columns from node to node.
    [row] = await connection.fetch(
        "SELECT EXISTS (SELECT 1 FROM purchase WHERE supplier = $1)"
        "  OR EXISTS (SELECT 1 FROM order_item WHERE supplier = $1 AND due_at IS NOT NULL) AS purchases,"
        " EXISTS (SELECT 1 FROM iccid_range WHERE supplier = $1) AS iccids,"
        " (SELECT min(package_code) FROM route WHERE supplier = $1) AS routed,"
        " (SELECT min(package_code) FROM package WHERE document ->> 'supplier' = $1"
        "  OR document ->> 'fallback' = $1) AS sold",
        code,
    )
    if row["routed"] or row["sold"]:
        return f"package {row['routed'] or row['sold']} is routed to it"
    if row["iccids"]:
        return "ICCIDs are loaded for it"
    return "eSIMs were bought there, or are to be" if row["purchases"] else None


async def set_status(connection: Connection, code: str, status: str) -> str | None:
    """Sets ACTIVE or PAUSED; what it was, None if there is no such supplier. ACTIVE makes its planned purchases due
    now."""
    row = await connection.fetchrow("SELECT status FROM supplier WHERE code = $1 FOR UPDATE", code)
    if row is not None:
        await connection.execute(
            "UPDATE supplier SET status = $2, paused_reason = NULL, updated_at = now() WHERE code = $1", code, status
        )
    if row is not None and status == "ACTIVE":
        await make_planned_due(connection, code)
    return None if row is None else row["status"]


async def make_planned_due(connection: Connection, code: str) -> None:
    """What is to be bought from the supplier is tried now."""
    await connection.execute(
        "UPDATE purchase SET due_at = now() WHERE supplier = $1 AND state = 'PLANNED' AND due_at > now()", code
    )


async def pause(session: Session, code: str, reason: str) -> bool:
    """Pauses an ACTIVE supplier; False if it is not ACTIVE any more."""
    rows = await session.fetch(
        "UPDATE supplier SET status = 'PAUSED', paused_reason = $2, updated_at = now()"
        " WHERE code = $1 AND status = 'ACTIVE' RETURNING 1",
        code,
        reason,
    )
    return bool(rows)


async def put_health(
    connection: Connection, code: str, up: bool, detail: str, balance: int | None, currency: str | None, now: datetime
) -> datetime | None:
    """Writes the result of the last health check; gives since when it has been the same. None, and nothing is written,
    for a supplier that was removed."""
    return await connection.fetchval(
        "INSERT INTO supplier_health AS h (code, up, since, asked_at, detail, balance, currency)"
        " SELECT code, $2, $6, $6, $3, $4, $5 FROM supplier WHERE code = $1"
        " ON CONFLICT (code) DO UPDATE SET up = excluded.up, asked_at = excluded.asked_at, detail = excluded.detail,"
        "  balance = excluded.balance, currency = excluded.currency,"
        "  since = CASE WHEN h.up = excluded.up THEN h.since ELSE excluded.since END"
        " RETURNING since",
        code,
        up,
        detail,
        balance,
        currency,
        now,
    )


async def set_route(connection: Connection, package_code: str, hops: Sequence[Hop]) -> None:
    await connection.execute("DELETE FROM route WHERE package_code = $1", package_code)
    await connection.executemany(
        "INSERT INTO route (package_code, position, supplier, sku, cost, cost_currency, agreed_cost)"
        " VALUES ($1, $2, $3, $4, $5, $6, $5)",
        [(package_code, position, *hop) for position, hop in enumerate(hops)],
    )


async def set_margin_floor(connection: Connection, package_code: str, basis_points: int | None) -> None:
    """What of the price a purchase of this package must leave; None: what the platform's setting says."""
    if basis_points is None:
        await connection.execute("DELETE FROM route_terms WHERE package_code = $1", package_code)
        return
    await connection.execute(
        "INSERT INTO route_terms (package_code, margin_floor_basis_points) VALUES ($1, $2)"
        " ON CONFLICT (package_code) DO UPDATE SET margin_floor_basis_points = $2",
        package_code,
        basis_points,
    )


async def packages_routed_first_to(connection: Connection, code: str) -> list[tuple[str, str, int | None]]:
    """(document, sku, cost) of the packages whose route begins with this supplier."""
    rows = await connection.fetch(
        "SELECT document::text AS document, sku, cost FROM route JOIN package USING (package_code)"
        " WHERE supplier = $1 AND position = 0 ORDER BY package_code",
        code,
    )
    return [(row["document"], row["sku"], row["cost"]) for row in rows]


async def load_iccids(connection: Connection, code: str, sku: str, iccids: Sequence[str]) -> int:
    """Adds ICCIDs to a supplier's range; returns how many were new."""
    rows = await connection.fetch(
        "INSERT INTO iccid_range (supplier, sku, iccid) SELECT $1, $2, unnest($3::text[]) ON CONFLICT DO NOTHING"
        " RETURNING 1",
        code,
        sku,
        list(iccids),
    )
    return len(rows)


async def free_iccids(connection: Connection, code: str) -> dict[str, int]:
    """The number of free ICCIDs, by sku."""
    rows = await connection.fetch(
        "SELECT sku, count(*) FILTER (WHERE taken_by IS NULL) AS free FROM iccid_range WHERE supplier = $1 GROUP BY sku"
        " ORDER BY sku",
        code,
    )
    return {row["sku"]: row["free"] for row in rows}


async def totals(connection: Connection, code: str) -> Totals:
    states = await connection.fetch("SELECT state, count(*) FROM purchase WHERE supplier = $1 GROUP BY state", code)
    money = await connection.fetch(
        "SELECT p.cost_currency, sum(p.cost)::bigint AS spent, o.currency,"
        " coalesce(sum(i.price * i.period_num) FILTER (WHERE p.state = 'DONE'), 0)::bigint AS paid FROM purchase p"
        " JOIN order_item i USING (tenant_id, order_id, line) JOIN orders o USING (tenant_id, order_id)"
        " WHERE p.supplier = $1 AND p.state IN ('DONE', 'WRITTEN_OFF') GROUP BY p.cost_currency, o.currency",
        code,
    )
    cost: dict[str, int] = {}
    sold: dict[str, int] = {}
    for row in money:
        if row["cost_currency"] is not None:
            cost[row["cost_currency"]] = cost.get(row["cost_currency"], 0) + row["spent"]
        sold[row["currency"]] = sold.get(row["currency"], 0) + row["paid"]
    return Totals(states={row["state"]: row["count"] for row in states}, cost=cost, sold=sold)


async def parked(connection: Connection, code: str | None = None) -> list[Parked]:
    """Parked purchases, oldest first; of all suppliers if `code` is None."""
    rows = await connection.fetch(
        f"SELECT {columns_of(Parked)} FROM purchase WHERE state = 'PARKED' AND ($1::text IS NULL OR supplier = $1)"
        " ORDER BY unknown_since, unit_key LIMIT 1000",
        code,
    )
    return as_values(Parked, rows)


async def open_purchases(connection: Connection) -> list[tuple[str, str, int]]:
    """(supplier, state, count) of the purchases that are not finished."""
    rows = await connection.fetch(
        "SELECT supplier, state, count(*) FROM purchase WHERE state IN ('PLANNED', 'SENT', 'PENDING', 'UNKNOWN',"
        " 'PARKED') GROUP BY supplier, state"
    )
    return [(row["supplier"], row["state"], row["count"]) for row in rows]


async def paused_by_worker(connection: Connection) -> dict[str, bool]:
    """By supplier, whether a worker paused it because it refused us as a whole, and no operator has resumed it."""
    rows = await connection.fetch(
        "SELECT code, status = 'PAUSED' AND paused_reason IS NOT NULL AS paused FROM supplier"
    )
    return {row["code"]: row["paused"] for row in rows}


async def add_event(
    session: Session, keys: DataKeys, code: str, key: bytes, kind: str, state: str, body: bytes, now: datetime
) -> bool:
    """Stores an event of a supplier; False if it was stored before."""
    rows = await session.fetch(
        "INSERT INTO supplier_event (supplier, key, kind, state, body, received_at) VALUES ($1, $2, $3, $4, $5, $6)"
        " ON CONFLICT (supplier, key) DO NOTHING RETURNING 1",
        code,
        key,
        kind,
        state,
        keys.seal(body, b"supplier_event|" + key),
        now,
    )
    return bool(rows)
