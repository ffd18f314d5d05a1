"""Finds orders by a part of their texts, and eSIMs by the last digits of their ICCID (docs/decisions/0041-search.md).

Nothing is read at once that takes long: pages of texts are read from the newest back, some thousands at a time, and the
answer says how far back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.db.connection import Connection

STEPS = (100, 900, 3_000)  # pages: what many orders hold is found among the newest
MOST_UNCOLLECTED = 20_000
MOST_SAME_DIGITS = 1_000
NEWEST = 2**53


class TextHit(NamedTuple):
    """An order whose texts hold all words; its texts in small letters."""

    tenant_id: int
    order_id: int
    transaction_id: str
    remark: str


class IccidHit(NamedTuple):
    tenant_id: int
    dealer: str
    profile_id: int
    order_id: int
    iccid: str


class Texts(NamedTuple):
    """`further`: the orderId before which a search further back begins; None where all were searched."""

    hits: Sequence[TextHit]
    further: int | None


_TAIL = f"""
SELECT tenant_id, order_id, transaction_id, remark FROM (
    SELECT t.tenant_id, o.order_id, lower(o.transaction_id COLLATE "default") AS transaction_id,
        lower(coalesce(o.remark, '')) AS remark
    FROM tenant t CROSS JOIN LATERAL (
        SELECT order_id, transaction_id, remark FROM orders o WHERE o.tenant_id = t.tenant_id AND order_id >= $2
            AND order_id < $3 ORDER BY order_id DESC LIMIT {MOST_UNCOLLECTED}
    ) o WHERE $1::bigint IS NULL OR t.tenant_id = $1 ORDER BY o.order_id DESC LIMIT {MOST_UNCOLLECTED}
) newest
WHERE NOT EXISTS (SELECT FROM unnest($4::text[]) word WHERE position(word IN transaction_id) = 0
    AND position(word IN remark) = 0)
ORDER BY order_id DESC LIMIT $5
"""
_CUT = """
SELECT first_order_id FROM search_page WHERE first_order_id < $1
ORDER BY first_order_id DESC OFFSET $2 LIMIT 1
"""
_PAGES = """
SELECT p.tenant_ids[l.place] AS tenant_id, p.order_ids[l.place] AS order_id, l.line FROM (
    SELECT * FROM search_page WHERE first_order_id < $2 AND first_order_id >= $3
        AND ($1::bigint IS NULL OR $1 = ANY(tenant_ids)) AND position($5 IN lines) > 0
    ORDER BY first_order_id DESC
) p CROSS JOIN LATERAL unnest(string_to_array(p.lines, E'\\n')) WITH ORDINALITY l(line, place)
WHERE NOT EXISTS (SELECT FROM unnest($6::text[]) word WHERE position(word IN l.line) = 0)
    AND ($1::bigint IS NULL OR p.tenant_ids[l.place] = $1)
    AND p.order_ids[l.place] < $4
ORDER BY p.first_order_id DESC LIMIT $7
"""


async def texts(
    connection: Connection, tenant_id: int | None, words: Sequence[str], before: int | None, limit: int
) -> Texts:
    """The newest orders of a dealer, or of all, that hold all words, the longest word first. Orders of the last minute
    are read as they are, the others from the pages of their texts. `before`: only texts before this orderId."""
    end = NEWEST if before is None else before
    reached: int = await connection.fetchval("SELECT reached FROM search_progress") or 0
    hits = await _uncollected(connection, tenant_id, words, (reached, end), limit) if end > reached else []
    searched = end
    for pages in STEPS:
        if len(hits) >= limit:
            return Texts(hits, min(hit.order_id for hit in hits))
        first: int | None = await connection.fetchval(_CUT, searched, pages - 1)
        hits += await _of_pages(connection, tenant_id, words, (searched, first or 0, end), limit - len(hits))
        if first is None:
            return Texts(hits, min(hit.order_id for hit in hits) if len(hits) >= limit else None)
        searched = first
    return Texts(hits, searched)


async def _uncollected(
    connection: Connection, tenant_id: int | None, words: Sequence[str], span: tuple[int, int], limit: int
) -> list[TextHit]:
    """Of the newest orders; those beyond MOST_UNCOLLECTED are found once they are collected."""
    rows = await connection.fetch(_TAIL, tenant_id, *span, list(words), limit)
    return [TextHit(row["tenant_id"], row["order_id"], row["transaction_id"], row["remark"]) for row in rows]


async def _of_pages(
    connection: Connection, tenant_id: int | None, words: Sequence[str], span: tuple[int, int, int], limit: int
) -> list[TextHit]:
    """`span`: pages that begin before and not before these ids, and the orderId before which orders are sought."""
    rows = await connection.fetch(_PAGES, tenant_id, *span, words[0], list(words), limit)
    return [TextHit(row["tenant_id"], row["order_id"], *row["line"].split("\t")) for row in rows]


async def beginning(connection: Connection, tenant_id: int | None, text: str, limit: int) -> list[TextHit]:
    """Orders of any age whose transactionId begins with the text as typed."""
    rows = await connection.fetch(
        "SELECT tenant_id, order_id, lower(transaction_id) AS transaction_id, '' AS remark FROM orders"
        " WHERE transaction_id >= $2 AND transaction_id < $2 || U&'\\+10FFFF'"
        " AND ($1::bigint IS NULL OR tenant_id = $1) ORDER BY transaction_id LIMIT $3",
        tenant_id,
        text,
        limit,
    )
    return [TextHit(**row) for row in rows]


async def iccids(connection: Connection, tenant_id: int | None, digits: str, limit: int) -> list[IccidHit]:
    """The newest eSIMs of a dealer, or of all, whose ICCID ends so."""
    first = digits[::-1]
    end = first[:-1] + chr(ord(first[-1]) + 1)
    rows = await connection.fetch(
        "SELECT p.tenant_id, t.name AS dealer, p.profile_id, p.order_id, p.iccid FROM ("
        "  SELECT tenant_id, profile_id, order_id, iccid FROM profile WHERE iccid IS NOT NULL"
        "   AND reverse(iccid) ~>=~ $2 AND reverse(iccid) ~<~ $3 AND ($1::bigint IS NULL OR tenant_id = $1)"
        f"  LIMIT {MOST_SAME_DIGITS}"
        " ) p JOIN tenant t USING (tenant_id) ORDER BY p.profile_id DESC LIMIT $4",
        tenant_id,
        first,
        end,
        limit,
    )
    return [IccidHit(**row) for row in rows]
