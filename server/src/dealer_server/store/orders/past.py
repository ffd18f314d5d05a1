"""Orders of days that are over, written as the service itself would have left them: a new `dealer-server dev` begins
with them."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection


class StoredOrder(NamedTuple):
    """An order of one line that was delivered. `number`: counts those of the dealer; `price`, `amount`: in
    ten-thousandths of a USD. Its profiles have the ids from order_id on."""

    number: int
    order_id: int
    package_code: str
    quantity: int
    price: int
    amount: int
    at: datetime
    delivered_at: datetime


class StoredProfile(NamedTuple):
    """`activation_code`: sealed."""

    profile_id: int
    order_id: int
    iccid: str
    activation_code: bytes
    qr_token: str
    data_bytes: int | None


_STAGES = (
    """
    CREATE TEMPORARY TABLE sold (
        number int, order_id bigint, package_code text, quantity smallint, price bigint, amount bigint,
        at timestamptz, delivered_at timestamptz
    )
    """,
    """
    CREATE TEMPORARY TABLE sold_profile (
        profile_id bigint, order_id bigint, iccid text, activation_code bytea, qr_token text, data_bytes bigint
    )
    """,
)
# In the order of their foreign keys. $1 is the dealer.
_WRITES = (
    """
    INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, delivery_status, order_status,
        version, updated_at)
    SELECT $1, order_id, 'shop-' || number, '\\x00000000000000000000000000000000', 'USD', amount, 'DELIVERED',
        'COMPLETED', 2, delivered_at FROM sold ORDER BY order_id
    """,
    """
    INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)
    SELECT $1, w.version + row_number() OVER later, 'ORDER_PAY', order_id, -amount, w.balance - sum(amount) OVER later,
        at
    FROM sold, wallet w WHERE w.tenant_id = $1 WINDOW later AS (ORDER BY order_id)
    """,
    """
    UPDATE wallet SET balance = balance - spent, version = version + orders, order_count = order_count + orders,
        profile_count = profile_count + profiles
    FROM (SELECT sum(amount) AS spent, count(*) AS orders, sum(quantity) AS profiles FROM sold) s WHERE tenant_id = $1
    """,
    """
    INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num, price,
        first_profile_id, item_status)
    SELECT $1, order_id, 0, package_code, 'simulated', quantity, 1, price, order_id, 'DELIVERED' FROM sold
    ORDER BY order_id
    """,
    """
    INSERT INTO profile (tenant_id, profile_id, order_id, line, lifecycle_status, iccid, activation_code, qr_token,
        esim_status, smdp_status, data_total_bytes, updated_at)
    SELECT $1, profile_id, order_id, 0, 'DELIVERED', iccid, activation_code, qr_token, 'GOT_RESOURCE', 'RELEASED',
        data_bytes, delivered_at FROM sold_profile JOIN sold USING (order_id) ORDER BY profile_id
    """,
    """
    INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at, finished_at)
    SELECT $1, order_id, event_type, order_version, 'SKIPPED', told_at, told_at
    FROM sold, LATERAL (VALUES ('ORDER_PAID', 1, at), ('DELIVERY_UPDATED', 2, delivered_at))
        AS event(event_type, order_version, told_at)
    ORDER BY order_id, order_version
    """,
)
_IDS = """
UPDATE id_block SET next = greatest(next, (SELECT max(profile_id) + 1 FROM sold_profile))
WHERE kind IN ('order', 'profile')
"""


_SINCE = (
    "UPDATE tenant SET created_at = $2 WHERE tenant_id = $1",
    "UPDATE credential SET created_at = $2 WHERE tenant_id = $1",
    "UPDATE ledger_entry SET created_at = $2 WHERE tenant_id = $1",
)


async def write(
    connection: Connection,
    tenant_id: int,
    orders: Iterable[StoredOrder],
    profiles: Iterable[StoredProfile],
    since: datetime,
) -> None:
    """Writes them in the caller's transaction, for a dealer who has none and whose wallet covers them. The dealer, and
    what stands in the wallet so far, is from `since` on."""
    for statement in _STAGES:
        await connection.execute(statement)
    await connection.copy_records_to_table("sold", records=orders)
    await connection.copy_records_to_table("sold_profile", records=profiles)
    for statement in _SINCE:
        await connection.execute(statement, tenant_id, since)
    for statement in _WRITES:
        await connection.execute(statement, tenant_id)
    await connection.execute(_IDS)
    await connection.execute("DROP TABLE sold, sold_profile")
