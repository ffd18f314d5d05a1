"""What if there are a million orders already? Loads delivered ones as the service itself would have left them.

`dealer-server audit` finds nothing wrong with the result. Half of the orders are the hot dealer's.
"""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from bench.support import calls
from bench.support.calls import Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance
from dealer_server import clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.operations.overview.count_hours import HourCounter
from dealer_server.operations.reports.fold import ReportFolder
from dealer_server.operations.search.collect import SearchCollector
from dealer_server.rules.esim import iccid
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.webhooks import bodies
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.events import EVENTS

_PRICE = money.parse(calls.PRICE, "USD")

Known = tuple[Dealer, str]
"""An order's dealer and orderNo."""

_STAGE = """
CREATE TEMPORARY TABLE stored (
    tenant_id bigint, order_id bigint, iccid text, activation_code bytea, qr_token text,
    delivery_id bigint, paid bytea, updated bytea
)
"""


class Stored(NamedTuple):
    """A row of _STAGE. With `delivery_id`, of the first of its two events, come the sealed bodies of both."""

    tenant_id: int
    order_id: int
    iccid: str
    activation_code: bytes
    qr_token: str
    delivery_id: int | None = None
    paid: bytes | None = None
    updated: bytes | None = None


_HINTS = EVENTS["DELIVERY_UPDATED"].example.change_hints or ()

_AT_ONCE = 100_000  # orders that are loaded in one transaction

# In the order of their foreign keys. $1 is the price of one order, $2 how far ids are from the epoch, in seconds, $3 an
# array of packages, of which each order has one.
AT = "to_timestamp($2 + order_id / 1000000)"
_PACKAGE = "($3)[1 + abs(hashint8(order_id)::bigint) % cardinality($3)]"
_LOADS = (
    f"""
    INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, delivery_status, order_status,
        version, updated_at)
    SELECT tenant_id, order_id, 'stored-' || order_id, '\\x{"00" * 16}', 'USD', $1, 'DELIVERED', 'COMPLETED', 2, {AT}
    FROM stored ORDER BY order_id
    """,
    f"""
    INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)
    SELECT tenant_id, w.version + number, 'ORDER_PAY', order_id, -$1, w.balance - number * $1, {AT}
    FROM (SELECT *, row_number() OVER (PARTITION BY tenant_id ORDER BY order_id) AS number FROM stored) s
    JOIN wallet w USING (tenant_id) ORDER BY order_id
    """,
    """
    UPDATE wallet SET balance = balance - orders * $1, version = version + orders, order_count = order_count + orders,
        profile_count = profile_count + orders
    FROM (SELECT tenant_id, count(*) AS orders FROM stored GROUP BY tenant_id) s
    WHERE wallet.tenant_id = s.tenant_id
    """,
    f"""
    INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num, price,
        first_profile_id, item_status)
    SELECT tenant_id, order_id, 0, {_PACKAGE}, 'simulated', 1, 1, $1, order_id, 'DELIVERED'
    FROM stored ORDER BY order_id
    """,
    f"""
    INSERT INTO profile (tenant_id, profile_id, order_id, line, lifecycle_status, iccid, activation_code, qr_token,
        esim_status, smdp_status, data_total_bytes, updated_at)
    SELECT tenant_id, order_id, order_id, 0, 'DELIVERED', iccid, activation_code, qr_token, 'GOT_RESOURCE', 'RELEASED',
        1073741824, {AT}
    FROM stored ORDER BY order_id
    """,
    "UPDATE id_block SET next = greatest(next, (SELECT max(order_id) + 1 FROM stored))",
)


# Dealers without a callback URL: their events are SKIPPED.
SKIPPED = f"""
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at, finished_at)
SELECT tenant_id, order_id, event_type, order_version, 'SKIPPED', {AT}, {AT}
FROM stored, (VALUES ('ORDER_PAID', 1), ('DELIVERY_UPDATED', 2)) AS event(event_type, order_version)
ORDER BY order_id, order_version
"""

# Dealers who have received both events, each at the first attempt.
DELIVERED = f"""
WITH delivered AS (
    INSERT INTO webhook_delivery (tenant_id, delivery_id, order_id, event_type, order_version, state, hints, body,
        attempt_count, created_at, finished_at, delivered_at)
    SELECT tenant_id, delivery_id + order_version - 1, order_id, event_type, order_version, 'DELIVERED', hints,
        CASE order_version WHEN 1 THEN paid ELSE updated END, 1, {AT}, {AT}, {AT}
    FROM stored, (VALUES ('ORDER_PAID', 1, ARRAY['ORDER_PAID']), ('DELIVERY_UPDATED', 2, ARRAY{list(_HINTS)}))
        AS event(event_type, order_version, hints)
    ORDER BY order_id, order_version
    RETURNING tenant_id, delivery_id, created_at
)
INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms, remote_address, http_status)
SELECT tenant_id, delivery_id, 1, created_at, 20, '192.0.2.10:443', 200 FROM delivered
"""


def load(
    instance: Instance,
    database: str,
    count: int,
    over: timedelta,
    ended: timedelta = timedelta(0),
    *,
    dealers: Sequence[Dealer] = (),
    events: str = SKIPPED,
    packages: Sequence[str] = (calls.PACKAGE,),
) -> None:
    """`count` delivered orders, evenly over a time that `ended` ago; none of that time may be there yet.

    Of these dealers in turn, of all (and every other one of the hot dealer) where none are given. `events` is the
    statement that says what becomes of their webhooks.
    """
    data_keys, buyers = instance.data_keys(database), dealers or _half_hot(instance.dealers)
    since = clock.now() - ended - over

    async def write(opened: Database) -> None:
        async with opened.connection() as connection:
            ids = await _delivery_ids(connection, 2 * count) if events == DELIVERED else None

        def make(done: int) -> list[Stored]:
            some = min(_AT_ONCE, count - done)
            taken = ids and ids[2 * done : 2 * (done + some)]
            return list(_rows(buyers, data_keys, some, since + over * (done / count), over * (some / count), taken))

        # The rows of the next transaction are made while PostgreSQL works for this one.
        following = asyncio.create_task(asyncio.to_thread(make, 0))
        for done in range(0, count, _AT_ONCE):
            rows = await following
            if done + _AT_ONCE < count:
                following = asyncio.create_task(asyncio.to_thread(make, done + _AT_ONCE))
            async with opened.transaction() as connection:
                await _store(connection, rows, events, packages)

    instance.run(database, write)


async def _store(connection: Connection, rows: Sequence[Stored], events: str, packages: Sequence[str]) -> None:
    await connection.execute("SET LOCAL synchronous_commit = off")
    await connection.execute("SET LOCAL session_replication_role = replica")  # the audit looks at foreign keys
    await connection.execute("SET LOCAL work_mem = '256MB'")
    await connection.execute(_STAGE)
    await connection.copy_records_to_table("stored", records=rows, columns=Stored._fields)
    await connection.execute("ANALYZE stored")
    for statement in (*_LOADS, events):
        await _execute(connection, statement, packages)
    await connection.execute("DROP TABLE stored")


def vacuum(instance: Instance, database: str) -> None:
    """What autovacuum does in time."""

    async def work(opened: Database) -> None:
        async with opened.connection() as connection:
            await connection.execute("VACUUM (ANALYZE)")

    instance.run(database, work)


def summarize(instance: Instance, database: str) -> None:
    """What a worker makes of orders in time: sums of reports, texts for the search, counted hours."""

    async def work(opened: Database) -> None:
        folder, collector = ReportFolder(opened), SearchCollector(opened, clock.now)
        hours = HourCounter(opened, clock.now)
        try:
            await folder.fold()
            await collector.collect()
            while await hours.count():
                pass
        finally:
            await folder.close()
            await collector.close()

    instance.run(database, work)


class Disk(NamedTuple):
    """The size of a database, and how many orders it holds."""

    bytes: int
    orders: int


def disk(instance: Instance, database: str) -> Disk:
    """After a vacuum."""
    vacuum(instance, database)

    async def look(opened: Database) -> Disk:
        async with opened.connection() as connection:
            found = await connection.fetch("SELECT pg_database_size(current_database()), (SELECT count(*) FROM orders)")
        return Disk(*found[0])

    return instance.run(database, look)


def due_now(instance: Instance, database: str) -> None:
    """No worker runs in a group that only orders: what it owes is due now, not late."""

    async def work(opened: Database) -> None:
        async with opened.connection() as connection:
            await connection.execute("UPDATE order_item SET due_at = now() WHERE due_at IS NOT NULL")

    instance.run(database, work)


def delivered(instance: Instance, database: str, count: int, *, recent: bool) -> list[Known]:
    """Up to `count` loaded orders at random: those of the last hour, or those before."""
    hour_ago = identity.first_id_at(int((clock.now() - timedelta(hours=1)).timestamp()))
    side = ">=" if recent else "<"
    return _known(
        instance,
        database,
        f"transaction_id LIKE 'stored-%' AND order_id {side} {hour_ago} ORDER BY random() LIMIT {count}",
    )


def paid(instance: Instance, database: str, count: int) -> list[Known]:
    """The newest `count` orders that nobody has fulfilled."""
    return _known(instance, database, f"version = 1 ORDER BY order_id DESC LIMIT {count}")


def _known(instance: Instance, database: str, condition: str) -> list[Known]:
    dealer_of = {dealer.tenant_id: dealer for dealer in instance.dealers}

    async def find(opened: Database) -> list[Known]:
        async with opened.connection() as connection:
            rows = await connection.fetch(f"SELECT tenant_id, order_id FROM orders WHERE {condition}")
        if not rows:
            raise Failed(f"no orders to query: {condition}")
        return [(dealer_of[row[0]], identity.order_no(row[1])) for row in rows]

    return instance.run(database, find)


async def _execute(connection: Connection, statement: str, packages: Sequence[str]) -> None:
    codes = ", ".join(f"'{code}'" for code in packages)
    values = [f"{_PRICE}::bigint", f"{identity.EPOCH_SECONDS}::bigint", f"ARRAY[{codes}]"]
    for at, value in enumerate(values, 1):
        statement = statement.replace(f"${at}", value)
    await connection.execute(statement)


def _half_hot(dealers: Sequence[Dealer]) -> list[Dealer]:
    return [one for dealer in dealers for one in (dealer, dealers[0])]


async def _delivery_ids(connection: Connection, count: int) -> range:
    """Takes so many ids off the sequence of deliveries."""
    sequence = "pg_get_serial_sequence('webhook_delivery', 'delivery_id')"
    last: int = await connection.fetchval(f"SELECT setval({sequence}, nextval({sequence}) + {count})")
    return range(last - count, last)


def _rows(
    buyers: Sequence[Dealer],
    keys: DataKeys,
    count: int,
    since: datetime,
    over: timedelta,
    delivery_ids: range | None,
) -> Iterator[Stored]:
    """What a supplier would have delivered: one profile per order, its id the order's."""
    first, step = identity.first_id_at(int(since.timestamp())), int(over.total_seconds()) * identity.SEQUENCE // count
    for number in range(count):
        dealer = buyers[number % len(buyers)]
        order_id = first + number * step
        digits = f"89009{order_id % 10**14:014d}"
        code = f"LPA:1$rsp.sandbox.example${secrets.token_hex(13).upper()}"
        sealed = keys.seal(code.encode(), profile_context(dealer.tenant_id, order_id))
        row = Stored(dealer.tenant_id, order_id, digits + iccid.luhn_digit(digits), sealed, secrets.token_urlsafe(16))
        yield row if delivery_ids is None else _received(row, code, keys, delivery_ids[2 * number])


_LINKS = Links("https://api.example.com")


def _received(row: Stored, code: str, keys: DataKeys, delivery_id: int) -> Stored:
    """With the bodies of both events."""
    profile = Profile(
        profile_id=row.order_id,
        lifecycle_status="DELIVERED",
        iccid=row.iccid,
        activation_code=code,
        qr_token=row.qr_token,
        esim_status="GOT_RESOURCE",
        smdp_status="RELEASED",
        data_total_bytes=1 << 30,
    )
    item = Item(0, calls.PACKAGE, "simulated", 1, 1, _PRICE, row.order_id, "DELIVERED", (profile,))
    order = Order(
        row.tenant_id,
        row.order_id,
        f"stored-{row.order_id}",
        "USD",
        _PRICE,
        0,
        "PAID",
        "DELIVERED",
        "COMPLETED",
        2,
        identity.created_at(row.order_id),
        (item,),
    )
    updated = msgspec.structs.replace(snapshot.delivery_updated(order, _LINKS), change_hints=_HINTS)
    sealed = [
        bodies.seal(keys, encoder.encode(event), row.tenant_id, delivery_id + number)
        for number, event in enumerate((snapshot.order_paid(order), updated))
    ]
    return row._replace(delivery_id=delivery_id, paid=sealed[0], updated=sealed[1])
