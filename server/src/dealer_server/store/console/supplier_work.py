"""What the console shows of one supplier's work: its latest calls, how many of them failed, the orders that wait for
it, and the packages that it makes. Each statement reads a bounded number of rows by key."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server.db.by_tenant import rows_of
from dealer_server.db.connection import Connection
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.incidents.health import share_text
from dealer_server.rules.money import money

COUNTED_CALLS = 20_000
COUNTED_UNITS = 1_000
ANSWER_SECONDS = 75  # a call without an answer for so long has none: its lease has run out
_decode = msgspec.json.Decoder(Package).decode


class CallRow(NamedTuple):
    """One call that bought or looked for an eSIM of this package. `answered_at` None: no answer was recorded.
    `outcome`: as fulfillment/purchases records it; SKIPPED: the supplier was not even asked."""

    order_id: int
    unit_key: str
    kind: str
    step: str
    sent_at: datetime
    answered_at: datetime | None
    outcome: str | None
    message: str | None
    tenant_id: int
    package_code: str

    @property
    def result(self) -> str:
        """A word for people."""
        word = (self.outcome or "").partition(" ")[0]
        if self.answered_at is None:
            return "No answer yet"
        return _RESULTS.get(word, "Answered")

    @property
    def failed(self) -> bool:
        return (self.outcome or "").startswith(("REJECTED", "WRITTEN_OFF", "UNKNOWN", "PARKED"))

    @property
    def reason(self) -> str:
        """Why it was refused, its code first; "" where it was not, or without one."""
        word, _, code = (self.outcome or "").partition(" ")
        if word != "REJECTED" or not code:
            return ""
        said = (self.message or "").removeprefix(f"{code}: ")
        return f"{code}: {said}" if said else code

    @property
    def seconds(self) -> float | None:
        return None if self.answered_at is None else max((self.answered_at - self.sent_at).total_seconds(), 0.0)


_RESULTS = {
    "DONE": "Bought",
    "PENDING": "In progress",
    "HELD": "Held for a refund",
    "REPRICED": "New price accepted",
    "REJECTED": "Failed",
    "WRITTEN_OFF": "Written off",
    "UNKNOWN": "No answer",
    "PARKED": "No answer",
    "SKIPPED": "Not asked",
    "DROPPED": "Not asked",
}


class CallCounts(NamedTuple):
    """Calls since a moment: how many were answered with what. `more`: only the latest COUNTED_CALLS are counted. `p50`,
    `p95`: seconds within which so many percent of the answers came; None without any."""

    total: int
    refused: int
    unanswered: int
    more: bool
    p50: float | None
    p95: float | None

    @property
    def failed(self) -> int:
        return self.refused + self.unanswered

    @property
    def success_rate(self) -> str:
        return share_text(self.total - self.failed, self.total)


class CallHour(NamedTuple):
    """The calls of an hour: how many were answered well, and how many were refused or not answered."""

    start: datetime
    good: int
    bad: int


class WaitingOrder(NamedTuple):
    """An order with units that wait for the supplier: how many, since when, and when the next of them is tried."""

    tenant_id: int
    name: str
    order_id: int
    units: int
    unknown: int
    since: datetime
    next_at: datetime
    reason: str | None


class Served(NamedTuple):
    """A package on whose route the supplier stands; `position` from 0. `following`: the next one of the route.
    `lowest`: the least that a dealer may pay."""

    package: Package
    position: int
    following: str | None
    sku: str
    cost: int | None
    cost_currency: str | None
    lowest: int

    @property
    def has_our_code(self) -> bool:
        """The supplier calls the package as we do."""
        return self.sku == self.package.package_code

    @property
    def loses(self) -> bool:
        """Some dealer pays less than it costs."""
        return self.cost is not None and self.cost_currency == self.package.currency and self.cost > self.lowest


class DealerPrice(NamedTuple):
    tenant_id: int
    name: str
    price: int


LATEST_CALLS = f"""
SELECT p.order_id, p.unit_key, c.kind, c.step, c.sent_at, c.answered_at, c.outcome, c.message, c.tenant_id,
    p.package_code
FROM (SELECT * FROM supplier_call WHERE supplier = $1 ORDER BY sent_at DESC LIMIT $2) c
{rows_of("purchase", "c", "tenant_id", "profile_id", "position")}
CROSS JOIN LATERAL (SELECT order_id, unit_key, package_code FROM purchase p
    JOIN order_item i USING (tenant_id, order_id, line) WHERE p.tenant_id = c.tenant_id
    AND p.profile_id = c.profile_id AND p.position = c.position LIMIT 1) p
ORDER BY c.sent_at DESC, p.unit_key
"""
_COUNTED = """
    count(*) FILTER (WHERE (outcome IS NOT NULL AND outcome !~ '^(SKIPPED|DROPPED)') OR late)::int AS total,
    count(*) FILTER (WHERE outcome ~ '^(REJECTED|WRITTEN_OFF)' AND outcome !~ ' TEMPORARY$')::int AS refused,
    count(*) FILTER (WHERE late OR outcome ~ '^(UNKNOWN|PARKED)|^REJECTED TEMPORARY$')::int AS unanswered
FROM (SELECT outcome, sent_at, answered_at,
        answered_at IS NULL AND sent_at < $3::timestamptz - $4 * interval '1 second' AS late
    FROM supplier_call WHERE supplier = $1 AND sent_at >= $2 ORDER BY sent_at DESC LIMIT $5) c
"""
_TOOK = ", ".join(
    f"percentile_disc(0.{part}) WITHIN GROUP (ORDER BY extract(epoch FROM answered_at - sent_at))::float8 AS p{part}"
    for part in (50, 95)
)
CALL_COUNTS = f"SELECT count(*)::int AS rows, {_TOOK}, {_COUNTED}"
CALL_HOURS = f"SELECT date_trunc('hour', sent_at, 'UTC') AS start, {_COUNTED} GROUP BY 1 ORDER BY 1"
WAITING_ORDERS = """
SELECT p.tenant_id, t.name, p.order_id, count(*)::int AS units,
    count(*) FILTER (WHERE p.state IN ('UNKNOWN', 'SENT'))::int AS unknown, min(p.created_at) AS since,
    min(p.due_at) AS next_at, max(p.reason) AS reason
FROM (SELECT * FROM purchase WHERE supplier = $1 AND due_at IS NOT NULL ORDER BY due_at LIMIT $2) p
JOIN tenant t USING (tenant_id) GROUP BY p.tenant_id, t.name, p.order_id ORDER BY since, p.order_id LIMIT $3
"""


async def latest_calls(connection: Connection, code: str, limit: int) -> list[CallRow]:
    """The newest first."""
    return [CallRow(**row) for row in await connection.fetch(LATEST_CALLS, code, limit)]


async def call_counts_of(
    connection: Connection, codes: Sequence[str], since: datetime, now: datetime
) -> dict[str, CallCounts]:
    """Of the calls since then, by supplier; what was not asked does not count, nor what may still be answered. Each
    looks at no more than its latest calls."""
    if not codes:
        return {}
    numbers = [1, *range(6, 5 + len(codes))]  # of the parameters that are codes
    each = [
        f"(SELECT ${number}::text AS supplier, c.* FROM ({CALL_COUNTS.replace('$1', f'${number}::text')}) c)"
        for number in numbers
    ]
    rows = await connection.fetch(
        " UNION ALL ".join(each), codes[0], since, now, ANSWER_SECONDS, COUNTED_CALLS, *codes[1:]
    )
    return {
        row["supplier"]: CallCounts(
            row["total"], row["refused"], row["unanswered"], row["rows"] == COUNTED_CALLS, row["p50"], row["p95"]
        )
        for row in rows
    }


async def call_hours(connection: Connection, code: str, since: datetime, now: datetime) -> list[CallHour]:
    """The hours with calls since then, of its latest COUNTED_CALLS calls."""
    rows = await connection.fetch(CALL_HOURS, code, since, now, ANSWER_SECONDS, COUNTED_CALLS)
    bad = [row["refused"] + row["unanswered"] for row in rows]
    return [CallHour(row["start"], row["total"] - failed, failed) for row, failed in zip(rows, bad, strict=True)]


async def waiting_orders(connection: Connection, code: str, limit: int) -> list[WaitingOrder]:
    """The oldest first, of the units that are tried next."""
    return [WaitingOrder(**row) for row in await connection.fetch(WAITING_ORDERS, code, COUNTED_UNITS, limit)]


async def served(
    connection: Connection, code: str, after: str | None, limit: int, first: Sequence[str] = ()
) -> list[Served]:
    """By name; `after`: those that follow this packageCode; `first`: those that stand before the others."""
    rows = await connection.fetch(
        "SELECT r.package_code, p.document::text AS document, r.position, r.sku, r.cost, r.cost_currency,"
        " (SELECT supplier FROM route o WHERE o.package_code = r.package_code AND o.position > r.position"
        "  ORDER BY o.position LIMIT 1) AS following"
        " FROM route r JOIN package p USING (package_code)"
        " WHERE r.supplier = $1 AND ($2::text IS NULL OR (p.document->>'package_name', r.package_code)"
        "  > ((SELECT document->>'package_name' FROM package WHERE package_code = $2), $2))"
        " ORDER BY array_position($4::text[], r.package_code), p.document->>'package_name', r.package_code LIMIT $3",
        code,
        after,
        limit,
        list(first),
    )
    packages = [_decode(row["document"]) for row in rows]
    lowest = await lowest_prices(connection, packages)
    return [
        Served(
            package=package,
            lowest=lowest[package.package_code],
            **{name: row[name] for name in ("position", "following", "sku", "cost", "cost_currency")},
        )
        for row, package in zip(rows, packages, strict=True)
    ]


async def lowest_prices(connection: Connection, packages: Sequence[Package]) -> dict[str, int]:
    """The least that any active dealer may pay for each, by its own price or the smallest markup in its currency."""
    own = await connection.fetch(
        "SELECT p.package_code, min(p.price) AS price FROM price p JOIN tenant t USING (tenant_id)"
        " WHERE p.package_code = ANY($1::text[]) AND t.status = 'ACTIVE' GROUP BY p.package_code",
        [package.package_code for package in packages],
    )
    markups = await connection.fetch(
        "SELECT w.currency, min(t.markup_basis_points) AS least FROM tenant t JOIN wallet w USING (tenant_id)"
        " WHERE t.status = 'ACTIVE' GROUP BY w.currency"
    )
    single = {row["package_code"]: row["price"] for row in own if row["price"] is not None}
    least = {row["currency"]: row["least"] for row in markups}
    found: dict[str, int] = {}
    for package in packages:
        listed = money.marked_up(package.price, least.get(package.currency, 0), package.currency)
        found[package.package_code] = min(listed, single.get(package.package_code, listed))
    return found


async def dealer_prices_below(connection: Connection, package: Package, cost: int, limit: int) -> list[DealerPrice]:
    """Active dealers that pay less for a package than it costs, those that pay least first."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name, t.markup_basis_points, p.price FROM tenant t JOIN wallet w USING (tenant_id)"
        " LEFT JOIN price p ON p.tenant_id = w.tenant_id AND p.package_code = $1"
        " WHERE t.status = 'ACTIVE' AND w.currency = $2 AND (p.package_code IS NULL OR p.price < $3)",
        package.package_code,
        package.currency,
        cost,
    )
    prices = [
        DealerPrice(
            row["tenant_id"],
            row["name"],
            money.marked_up(package.price, row["markup_basis_points"], package.currency)
            if row["price"] is None
            else row["price"],
        )
        for row in rows
    ]
    return sorted((one for one in prices if one.price < cost), key=lambda one: (one.price, one.tenant_id))[:limit]
