"""Which rows break an invariant of the ledger, of orders, or of the work behind them?

Each file *.sql holds one invariant: its code and title in the first line, and statements. Each statement finds the rows
that break the invariant in one way, the fault named above it, and says the tenant of each. It joins whole tables, by
hash or sorted. $1 is the tenant that is audited, NULL for all; $2 is the time of the audit. Words in braces stand for
the fragments below.

An incremental audit runs the same statements on an excerpt of the tables (store/audit/excerpt.py). There {opening},
{entries}, {acts_before} and {hash_before} let those that count from the beginning go on from where it begins.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.rules.orders.identity import EPOCH_SECONDS, SEQUENCE
from dealer_server.rules.orders.order import STOCK
from dealer_server.store.audit.audit_log import ACT
from dealer_server.store.profiles.iccid import OVER

SAMPLES = 20

# Plans for whole tables: no compilation, no million index scans because an estimate was wrong, and no parallel workers,
# whose shared memory containers are short of.
_SETTINGS = {
    "jit": "off",
    "enable_nestloop": "off",
    "max_parallel_workers_per_gather": "0",
    "statement_timeout": "0",
    "work_mem": "32MB",
}
# Over all tenants the tables themselves are read: a broken index hides the rows that break its promise.
_WITHOUT_INDEXES = {"enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off"}


class Query(NamedTuple):
    """Finds the rows that break `invariant` by `fault`. Their tenant_id is NULL where they belong to no tenant.
    `excerpt_sql` is the statement for an excerpt."""

    invariant: str
    fault: str
    sql: str
    excerpt_sql: str


class Violations(NamedTuple):
    """How many rows a query found, and the first of them."""

    total: int
    rows: Sequence[dict[str, Any]]


PAUSES_SECONDS = (0, 0.5, 2)
# Tables of the coordinator that are compared with those of the nodes: Citus takes them as subqueries.
_LOCAL = re.compile(
    r"\b(FROM|JOIN) (id_block|stock_profile|report_day|report_all|wallet_day|audit_log)\b(?: ([a-z])\b)?"
)


async def prepare(connection: Connection, tenant_id: int | None) -> None:
    """Settings for the rest of the transaction."""
    settings = _SETTINGS if tenant_id is not None else _SETTINGS | _WITHOUT_INDEXES
    if is_distributed(connection):
        settings = {"statement_timeout": "0", "citus.enable_repartition_joins": "on"}
    for name, value in settings.items():
        await connection.execute(f"SET LOCAL {name} = '{value}'")


async def violations(connection: Connection, sql: str, tenant_id: int | None, now: datetime) -> Violations:
    """What one of the two statements of a query finds."""
    arguments = (tenant_id, now) if "$2" in sql else (tenant_id,)
    if not is_distributed(connection):
        return await _violations(connection, sql, arguments)
    # The statement may see one node later than another: what is violated indeed is so when it is looked at again.
    found = Violations(0, ())
    for pause in PAUSES_SECONDS:
        await asyncio.sleep(pause)
        found = await _violations(connection, _with_local_tables(sql), arguments)
        if not found.total:
            break
    return found


def _with_local_tables(sql: str) -> str:
    return _LOCAL.sub(lambda found: f"{found[1]} (SELECT * FROM {found[2]} OFFSET 0) {found[3] or found[2]}", sql)


async def _violations(connection: Connection, sql: str, arguments: Sequence[object]) -> Violations:
    rows = await connection.fetch(
        f"SELECT count(*) OVER () AS violations, v.* FROM ({sql}) v"
        f" WHERE $1::bigint IS NULL OR v.tenant_id = $1 ORDER BY v.tenant_id LIMIT {SAMPLES}",
        *arguments,
    )
    samples = [{name: _plain(value) for name, value in row.items() if name != "violations"} for row in rows]
    return Violations(rows[0]["violations"] if rows else 0, samples)


def _plain(value: Any) -> Any:
    """Sums of amounts come as Decimal; every amount is an integer."""
    return int(value) if isinstance(value, Decimal) else value


# A profile's kind is one bit, so that bit_or over the profiles of a line or an order answers every "all" and "any" of
# rules/delivery/delivery.py. voided: cancelled before delivery; ended: cancelled after it.
_KINDS = ("refunded", "voided", "failed", "waiting", "ended", "delivered", "activating", "activated", "held")
_BITS = {kind: 1 << number for number, kind in enumerate(_KINDS)}
_BITS["lacking"] = _BITS["failed"] | _BITS["waiting"]
_BITS["in_use"] = _BITS["delivered"] | _BITS["activating"] | _BITS["activated"]
_BITS["ready"] = _BITS["ended"] | _BITS["in_use"]
_BITS["live"] = _BITS["lacking"] | _BITS["ready"]
_KIND = """CASE
    WHEN refunded THEN {refunded}
    WHEN iccid IS NULL AND plan_mode IS NULL
        THEN CASE WHEN cancelled THEN {voided} WHEN failed THEN {failed} ELSE {waiting} END
    WHEN cancelled THEN {ended}
    ELSE CASE lifecycle_status
        WHEN 'ACTIVATING' THEN {activating} WHEN 'ACTIVATED' THEN {activated} ELSE {delivered} END
    END | CASE WHEN held THEN {held} ELSE 0 END"""
_UNSOLD = "iccid IS NULL AND plan_mode IS NULL AND NOT refunded AND NOT cancelled AND NOT failed"
_FRAGMENTS = {name: str(bits) for name, bits in _BITS.items()} | {
    "kind": _KIND.format(**_BITS),
    "unsold": _UNSOLD,
    "waits": f"{_UNSOLD} AND NOT held",
    "over": OVER,
    "stock": STOCK,
    "act": ACT,
    "epoch_seconds": str(EPOCH_SECONDS),
    "sequence": str(SEQUENCE),
    # What is older may have been deleted for its age.
    "deliveries_from": "(SELECT deleted_before FROM retention WHERE kind = 'webhook_delivery')",
    "attempts_from": "(SELECT deleted_before FROM retention WHERE kind = 'webhook_attempt')",
}

_FROM_THE_BEGINNING = {
    "opening": "(SELECT tenant_id, 0 AS version, 0 AS balance, 0 AS orders, 0 AS profiles FROM wallet WHERE false)",
    "entries": "ledger_entry",
    "acts_before": "0",
    "hash_before": "''::bytea",
}
_FROM_THE_OPENING = {
    "opening": "opening",
    "entries": "(SELECT entry.* FROM ledger_entry entry LEFT JOIN opening USING (tenant_id)"
    " WHERE entry.version > coalesce(opening.version, -1))",
    "acts_before": "(SELECT acts FROM log_opening)",
    "hash_before": "(SELECT hash FROM log_opening)",
}


def _files(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry)
        elif entry.name.endswith(".sql"):
            yield entry


def _read(file: Traversable) -> tuple[str, str, list[Query]]:
    """The code and title of an invariant, and its statements."""
    head, *statements = file.read_text().split("\n-- Fault: ")
    code, title = head.splitlines()[0].removeprefix("-- ").split(": ", 1)
    queries = []
    for statement in statements:
        fault, sql = statement.split("\n", 1)
        sql = sql.strip().removesuffix(";")
        queries.append(Query(code, fault, _with(_FROM_THE_BEGINNING, sql), _with(_FROM_THE_OPENING, sql)))
    return code, title, queries


def _with(fragments: Mapping[str, str], sql: str) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda word: {**_FRAGMENTS, **fragments}[word[1]], sql)


_INVARIANTS = [_read(file) for file in sorted(_files(resources.files(__name__)), key=lambda file: file.name)]
TITLES = {code: title for code, title, _ in _INVARIANTS}
QUERIES = [query for _, _, queries in _INVARIANTS for query in queries]
