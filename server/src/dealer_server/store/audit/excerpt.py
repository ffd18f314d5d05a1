"""Which rows does an incremental audit look at? All rows of each order that changed.

They are copied into temporary tables with the names of the real ones. PostgreSQL looks for a table among the temporary
ones first, so the statements of the invariants run on the excerpt as they stand. No statement here reads a whole table:
a block-range index finds rows by time, and every other index finds them by key.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.orders.identity import first_id_at
from dealer_server.store.audit.checkpoint import Checkpoint
from dealer_server.store.audit.unfinished import WORK

# Transactions that are under way while an audit takes its snapshot write times and ids from before it.
MARGIN = timedelta(minutes=15)

# Tables that grow, with their keys. All others are read as they are.
KEYS = {
    "orders": "tenant_id, order_id",
    "order_item": "tenant_id, order_id, line",
    "profile": "tenant_id, profile_id",
    "profile_life": "tenant_id, profile_id",
    "ledger_entry": "tenant_id, version",
    "refund": "tenant_id, refund_id",
    "refund_line": "tenant_id, refund_id, profile_id",
    "void_request": "tenant_id, profile_id",
    "suspension": "tenant_id, profile_id, suspension_id",
    "purchase": "tenant_id, profile_id, position",
    "stock_profile": "iccid",
    "webhook_delivery": "tenant_id, delivery_id",
    "webhook_attempt": "tenant_id, delivery_id, number",
    "audit_log": "audit_id",
}
# opening: what the wallets came to without the entries, orders and profiles of the excerpt; of the log likewise.
_CREATE = """
CREATE TEMPORARY TABLE audited_order (tenant_id bigint, order_id bigint, PRIMARY KEY (tenant_id, order_id))
    ON COMMIT DROP;
CREATE TEMPORARY TABLE opening (tenant_id bigint PRIMARY KEY, version bigint, balance bigint, orders bigint,
    profiles bigint) ON COMMIT DROP;
CREATE TEMPORARY TABLE log_opening (acts bigint, last_act bigint, hash bytea) ON COMMIT DROP;
""" + "".join(
    f"CREATE TEMPORARY TABLE {table} (LIKE {table}, PRIMARY KEY ({key})) ON COMMIT DROP;\n"
    for table, key in KEYS.items()
)

_BY_KEY = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
}
_BY_TIME = _BY_KEY | {"enable_bitmapscan": "on", "enable_indexscan": "off", "enable_indexonlyscan": "off"}


class Start(NamedTuple):
    """Where an incremental audit begins: at a time, or at the checkpoint of that time."""

    at: datetime
    checkpoint: Checkpoint | None

    @property
    def since(self) -> datetime:
        return self.at - MARGIN


class Size(NamedTuple):
    """How much an incremental audit looks at: orders, ledger entries, deliveries."""

    orders: int
    entries: int
    deliveries: int


class Step(NamedTuple):
    """A statement that fills the excerpt. Words in braces are values. `by_time`: a block-range index finds its rows."""

    sql: str
    by_time: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        return _BY_TIME if self.by_time else _BY_KEY

    def numbered(self, values: Mapping[str, object]) -> tuple[str, Sequence[object]]:
        """The statement with numbered parameters, and these."""
        used = [name for name in values if f"{{{name}}}" in self.sql]
        return self.sql.format(**{name: f"${number}" for number, name in enumerate(used, 1)}), [
            values[name] for name in used
        ]


def _copy(table: str, select: str, *, by_time: bool = False) -> Step:
    return Step(f"INSERT INTO pg_temp.{table} {select} ON CONFLICT DO NOTHING", by_time)


def _order(select: str, *, by_time: bool = False) -> Step:
    return _copy("audited_order", select, by_time=by_time)


def _each(source: str, table: str, condition: str, columns: str = "found.*") -> str:
    """The rows of a table that belong to each row of a source, found by their key and in no other way."""
    return (
        f"SELECT {columns} FROM {source} CROSS JOIN LATERAL (SELECT * FROM {table} t WHERE {condition} OFFSET 0) found"
    )


_ORDER = "found.tenant_id, found.order_id"
_TENANTS = "(SELECT tenant_id FROM tenant UNION SELECT tenant_id FROM wallet) of"
_AUDITED = "pg_temp.audited_order of"
_OF_ORDER = "t.tenant_id = of.tenant_id AND t.order_id = of.order_id"
_OF_PROFILE = "t.tenant_id = of.tenant_id AND t.profile_id = of.profile_id"
_NEW_PROFILE = "t.tenant_id = of.tenant_id AND t.profile_id >= {first_id}"

# Where the wallets and the log begin: at the checkpoint, or at the last row that is older than the time.
_FROM_CHECKPOINT = (
    _copy(
        "opening",
        "SELECT tenant_id, version, balance, order_count, profile_count FROM audit_checkpoint_wallet",
    ),
    _copy("log_opening", "SELECT acts, last_act, hash FROM audit_checkpoint"),
    _order("SELECT tenant_id, order_id FROM audit_checkpoint_order"),
)
_FROM_TIME = (
    _copy(
        "opening",
        f"SELECT last.tenant_id, last.version, last.balance_after, NULL, NULL FROM {_TENANTS} CROSS JOIN LATERAL"
        " (SELECT * FROM ledger_entry e WHERE e.tenant_id = of.tenant_id AND e.created_at < {since}"
        " ORDER BY e.tenant_id DESC, e.version DESC LIMIT 1) last",
    ),
    _copy(
        "log_opening",
        "SELECT acts - (SELECT count(*) FROM audit_log WHERE audit_id > coalesce(last.audit_id, 0)),"
        " coalesce(last.audit_id, 0), coalesce(last.hash, '') FROM (SELECT 1) one"
        " LEFT JOIN audit_head ON true LEFT JOIN (SELECT audit_id, hash FROM audit_log"
        " WHERE at < {since} ORDER BY audit_id DESC LIMIT 1) last ON true",
    ),
)

# Rows that are new or changed, and the orders that they belong to.
_FIND = (
    _copy("audit_log", "SELECT * FROM audit_log WHERE audit_id > (SELECT last_act FROM pg_temp.log_opening)"),
    _copy(
        "ledger_entry",
        _each(
            f"{_TENANTS} LEFT JOIN pg_temp.opening USING (tenant_id)",
            "ledger_entry",
            "t.tenant_id = of.tenant_id AND t.version > coalesce(opening.version, -1)",
        ),
    ),
    _order("SELECT tenant_id, reference FROM pg_temp.ledger_entry WHERE entry_type = 'ORDER_PAY'"),
    _order(
        _each(
            "pg_temp.ledger_entry of",
            "refund",
            "of.entry_type = 'REFUND' AND t.tenant_id = of.tenant_id AND t.refund_id = of.reference",
            _ORDER,
        )
    ),
    _order("SELECT tenant_id, order_id FROM orders WHERE updated_at >= {since}", by_time=True),
    _order("SELECT tenant_id, order_id FROM webhook_delivery WHERE created_at >= {since}", by_time=True),
    _copy("profile", "SELECT * FROM profile WHERE updated_at >= {since}", by_time=True),
    _copy("webhook_attempt", "SELECT * FROM webhook_attempt WHERE started_at >= {since}", by_time=True),
    _order(
        _each(
            "(SELECT DISTINCT tenant_id, delivery_id FROM pg_temp.webhook_attempt) of",
            "webhook_delivery",
            "t.tenant_id = of.tenant_id AND t.delivery_id = of.delivery_id",
            _ORDER,
        )
    ),
    *(
        _order(_each(_TENANTS, table, f"t.tenant_id = of.tenant_id AND t.{key} >= {{first_id}}", _ORDER))
        for table, key in (("orders", "order_id"), ("order_item", "order_id"), ("refund", "refund_id"))
    ),
    _copy("profile", _each(_TENANTS, "profile", _NEW_PROFILE)),
    _copy("profile_life", _each(_TENANTS, "profile_life", _NEW_PROFILE)),
    # The last of each dealer: its ids must not come again.
    _order(
        f"SELECT last.tenant_id, last.order_id FROM {_TENANTS} CROSS JOIN LATERAL (SELECT * FROM orders t"
        " WHERE t.tenant_id = of.tenant_id ORDER BY t.tenant_id DESC, t.order_id DESC LIMIT 1) last"
    ),
    _copy(
        "profile",
        f"SELECT last.* FROM {_TENANTS} CROSS JOIN LATERAL (SELECT * FROM profile t"
        " WHERE t.tenant_id = of.tenant_id ORDER BY t.tenant_id DESC, t.profile_id DESC LIMIT 1) last",
    ),
    *(_order(work) for work in WORK),
    # Every life is due some time; those that are late are found supplier by supplier.
    _copy(
        "profile_life",
        "WITH RECURSIVE followed AS ((SELECT supplier FROM profile_life WHERE due_at IS NOT NULL AND supplier >= ''"
        " ORDER BY supplier, due_at LIMIT 1) UNION ALL SELECT next.supplier FROM followed of CROSS JOIN LATERAL"
        " (SELECT supplier FROM profile_life t WHERE due_at IS NOT NULL AND t.supplier > of.supplier"
        " ORDER BY t.supplier, t.due_at LIMIT 1) next) "
        + _each(
            "followed of",
            "profile_life",
            "t.supplier = of.supplier AND t.due_at < {now}::timestamptz - interval '1 hour'",
        ),
    ),
    _order("SELECT tenant_id, order_id FROM pg_temp.profile"),
    _order("SELECT tenant_id, order_id FROM pg_temp.profile_life"),
)

# Orders that an invariant compares with those found: they share a transactionId, an ICCID or a stock code.
_PROFILES = _each(
    f"{_AUDITED} JOIN LATERAL (SELECT * FROM order_item t WHERE {_OF_ORDER} OFFSET 0) line ON true",
    "profile",
    "t.tenant_id = line.tenant_id AND t.order_id = line.order_id"
    " AND t.profile_id BETWEEN line.first_profile_id AND line.first_profile_id + line.quantity - 1",
)
_WITH_ICCID = "(SELECT * FROM pg_temp.profile WHERE iccid IS NOT NULL) of"
_RELATE = (
    _copy("profile", _PROFILES),
    _copy("orders", _each(_AUDITED, "orders", _OF_ORDER)),
    _copy("stock_profile", _each(_WITH_ICCID, "stock_profile", "t.iccid = of.iccid")),
    _copy(
        "stock_profile",
        _each(
            "pg_temp.profile of",
            "stock_profile",
            "t.taken_tenant_id = of.tenant_id AND t.taken_by = of.profile_id AND t.taken_by IS NOT NULL",
        ),
    ),
    _order(
        _each(
            "pg_temp.orders of",
            "orders",
            "t.transaction_id = of.transaction_id AND t.tenant_id = of.tenant_id",
            _ORDER,
        )
    ),
    _order(_each(_WITH_ICCID, "profile", "t.tenant_id = of.tenant_id AND t.iccid = of.iccid", _ORDER)),
    _order(
        _each(
            "(SELECT * FROM pg_temp.profile WHERE recharges IS NOT NULL) of",
            "profile",
            "t.tenant_id = of.tenant_id AND t.profile_id = of.recharges",
            _ORDER,
        )
    ),
    _order(
        _each(
            "pg_temp.profile of",
            "profile",
            "t.tenant_id = of.tenant_id AND t.recharges = of.profile_id AND t.recharges IS NOT NULL",
            _ORDER,
        )
    ),
    _order(
        "WITH RECURSIVE followed AS ((SELECT supplier FROM profile_life WHERE supplier >= '' ORDER BY supplier, iccid"
        " LIMIT 1) UNION ALL SELECT next.supplier FROM followed of CROSS JOIN LATERAL (SELECT supplier"
        " FROM profile_life t WHERE t.supplier > of.supplier ORDER BY t.supplier, t.iccid LIMIT 1) next) "
        + _each(
            f"{_WITH_ICCID} CROSS JOIN (SELECT supplier FROM followed) by",
            "profile_life",
            "t.supplier = by.supplier AND t.iccid = of.iccid",
            _ORDER,
        )
    ),
    _order(
        _each(
            "pg_temp.stock_profile of",
            "profile",
            "t.tenant_id = of.taken_tenant_id AND t.profile_id = of.taken_by",
            _ORDER,
        )
    ),
)

# Every row of the orders, and what was paid and given back for them before.
_FILL = (
    _copy("order_item", _each(_AUDITED, "order_item", _OF_ORDER)),
    _copy("refund", _each(_AUDITED, "refund", _OF_ORDER)),
    _copy("webhook_delivery", _each(_AUDITED, "webhook_delivery", _OF_ORDER)),
    _copy(
        "ledger_entry",
        _each(
            _AUDITED,
            "ledger_entry",
            "t.tenant_id = of.tenant_id AND t.entry_type = 'ORDER_PAY' AND t.reference = of.order_id",
        ),
    ),
    _copy(
        "ledger_entry",
        _each(
            "pg_temp.refund of",
            "ledger_entry",
            "t.tenant_id = of.tenant_id AND t.entry_type = 'REFUND' AND t.reference = of.refund_id",
        ),
    ),
    _copy(
        "refund_line",
        _each("pg_temp.refund of", "refund_line", "t.tenant_id = of.tenant_id AND t.refund_id = of.refund_id"),
    ),
    _copy("refund_line", _each("pg_temp.profile of", "refund_line", f"{_OF_PROFILE} AND t.status <> 'REJECTED'")),
    _copy("void_request", _each("pg_temp.profile of", "void_request", _OF_PROFILE)),
    _copy("suspension", _each("pg_temp.profile of", "suspension", _OF_PROFILE)),
    _copy("purchase", _each("pg_temp.profile of", "purchase", _OF_PROFILE)),
    _copy("profile_life", _each("pg_temp.profile of", "profile_life", _OF_PROFILE)),
    _copy("stock_profile", "SELECT * FROM stock_profile WHERE taken_by IS NULL AND loaded_at >= {since}"),
    _copy(
        "webhook_attempt",
        _each(
            "pg_temp.webhook_delivery of",
            "webhook_attempt",
            "t.tenant_id = of.tenant_id AND t.delivery_id = of.delivery_id",
        ),
    ),
)
# Orders of the excerpt that the wallet had counted before, as their debits are no new ones.
_COUNTED = """
UPDATE pg_temp.opening SET orders = opening.orders - counted.orders, profiles = opening.profiles - counted.profiles
FROM (SELECT e.tenant_id, count(*) AS orders, coalesce(sum(p.profiles), 0) AS profiles
    FROM pg_temp.ledger_entry e JOIN pg_temp.opening USING (tenant_id)
    JOIN pg_temp.orders o ON o.tenant_id = e.tenant_id AND o.order_id = e.reference
    LEFT JOIN (SELECT tenant_id, order_id, count(*) AS profiles FROM pg_temp.profile WHERE recharges IS NULL
        GROUP BY tenant_id, order_id) p
        ON p.tenant_id = o.tenant_id AND p.order_id = o.order_id
    WHERE e.entry_type = 'ORDER_PAY' AND e.version <= opening.version GROUP BY e.tenant_id) counted
WHERE counted.tenant_id = opening.tenant_id
"""


def steps(start: Start) -> tuple[Sequence[Step], Sequence[Step], Sequence[Step]]:
    """The statements that find the orders; that add related ones, again while any were added; that copy the rest."""
    return (*(_FROM_CHECKPOINT if start.checkpoint else _FROM_TIME), *_FIND), _RELATE, _FILL


async def create(connection: Connection) -> None:
    """Creates the empty excerpt, for this transaction, which can write nothing else from now on."""
    schema = await connection.fetchval("SELECT quote_ident(current_schema())")
    await connection.execute(_CREATE)
    await connection.execute("SET TRANSACTION READ ONLY")
    await connection.execute(f"SET LOCAL search_path = {schema}, pg_temp")


def step_count(start: Start) -> int:
    """How often `fill` says that a step is done."""
    find, _, copy = steps(start)
    return len(find) + len(copy)


def values(start: Start, now: datetime) -> Mapping[str, object]:
    """What the words in braces stand for."""
    return {"since": start.since, "first_id": first_id_at(int(start.since.timestamp())), "now": now}


async def fill(connection: Connection, start: Start, now: datetime, step_done: Callable[[], None]) -> Size:
    """Fills the excerpt. From then on the names of its tables mean the excerpt."""
    find, relate, copy = steps(start)
    given = values(start, now)
    for step in find:
        await _run(connection, step, given)
        step_done()
    found = -1
    while found != (found := await _count(connection, "audited_order")):
        for step in relate:
            await _run(connection, step, given)
    for step in copy:
        await _run(connection, step, given)
        step_done()
    for table in ("audited_order", "opening", "log_opening", *KEYS):
        await connection.execute(f"ANALYZE pg_temp.{table}")
    await set_locally(connection, dict.fromkeys(_BY_KEY, "DEFAULT"))
    await connection.execute(_COUNTED)
    await connection.execute("SELECT set_config('search_path', 'pg_temp, ' || quote_ident(current_schema()), true)")
    return Size(*[await _count(connection, table) for table in ("orders", "ledger_entry", "webhook_delivery")])


async def _run(connection: Connection, step: Step, given: Mapping[str, object]) -> None:
    await set_locally(connection, step.settings)
    sql, arguments = step.numbered(given)
    await connection.execute(sql, *arguments)


async def set_locally(connection: Connection, settings: Mapping[str, str]) -> None:
    """Settings for the rest of the transaction."""
    await connection.execute(";".join(f"SET LOCAL {name} = {value}" for name, value in settings.items()))


async def _count(connection: Connection, table: str) -> int:
    return await connection.fetchval(f"SELECT count(*) FROM pg_temp.{table}") or 0
