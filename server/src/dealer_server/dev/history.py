"""What does a month of business look like? Orders of the last days, as the service itself would have left them, so that
the console of a new `dealer-server dev` has something to show. `dealer-server audit` finds nothing wrong with them.
"""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.esim import iccid
from dealer_server.rules.orders import identity

POPULAR = (
    *("FR-3GB-30D", "EU-35-5GB-30D", "JP-1GB-7D", "ES-3GB-30D", "TH-10GB-30D", "US-5GB-30D", "EU-35-10GB-30D"),
    *("IT-1GB-7D", "TR-3GB-30D", "GB-1GB-7D", "ID-5GB-30D", "ASIA-13-5GB-30D", "AE-1GB-7D", "MX-3GB-30D"),
)
"""The packages that are sold, the most popular first."""
GROWTH = 1.01  # from one day to the next
WEEKEND = 1.35
DELIVERED_SECONDS = range(1, 6)
IDS_OF_A_SECOND = 900_000


class Dealer(NamedTuple):
    """A dealer whose business is the same in each new data folder. `orders_a_day`: on the last day. `balance`: what is
    left of the money, in USD. `seed`: ten apart, as ids of a second follow from them."""

    name: str
    orders_a_day: float
    balance: int
    seed: int


DEMO = Dealer("Demo dealer", orders_a_day=20, balance=1_000, seed=20)
OTHERS = (
    Dealer("Alpine Travel", orders_a_day=28, balance=2_480, seed=30),
    Dealer("Harbour Mobile", orders_a_day=9, balance=315, seed=40),
)


class Sold(NamedTuple):
    """An order of one line. Its profiles have the ids from order_id on."""

    order_id: int
    delivered_seconds: int
    package: Package
    quantity: int

    @property
    def amount(self) -> int:
        return self.package.price * self.quantity


class Profile(NamedTuple):
    """A row of the staging table `sold_profile`."""

    profile_id: int
    order_id: int
    iccid: str
    activation_code: bytes
    qr_token: str
    data_bytes: int | None


def sold(dealer: Dealer, packages: Mapping[str, Package], days: int, now: datetime) -> list[Sold]:
    """The dealer's orders of so many days before `now`, the oldest first."""
    chance = Random(dealer.seed)
    choices = [packages[code] for code in POPULAR if code in packages]
    weights = [1 / (rank + 2) for rank in range(len(choices))]
    orders: dict[int, Sold] = {}
    end = now - timedelta(minutes=1)  # by `now` the last one is delivered
    for hour in range(24 * days, 0, -1):
        begin = end - timedelta(hours=hour)
        expected = dealer.orders_a_day / 24 / GROWTH ** (hour / 24) * _busy(begin)
        times = sorted(chance.uniform(0, 3600) for _ in range(_poisson(chance, expected)))
        for at in times:
            second = int((begin + timedelta(seconds=at)).timestamp())
            order_id = identity.first_id_at(second) + chance.randrange(dealer.seed, IDS_OF_A_SECOND, 100)
            [package] = chance.choices(choices, weights)
            [quantity] = chance.choices((1, 2, 3, 4), (80, 14, 4, 2))
            orders[order_id] = Sold(order_id, chance.choice(DELIVERED_SECONDS), package, quantity)
    return [orders[order_id] for order_id in sorted(orders)]


def _busy(at: datetime) -> float:
    """How busy an hour is beside the day's mean."""
    day = WEEKEND if at.weekday() >= 5 else 1.0
    return day * (1 - 0.75 * math.cos((at.hour - 3) / 24 * math.tau))


def _poisson(chance: Random, expected: float) -> int:
    """How many of many unlikely things happen."""
    count, product, end = 0, chance.random(), math.exp(-expected)
    while product > end:
        count, product = count + 1, product * chance.random()
    return count


def _profiles(orders: Sequence[Sold], tenant_id: int, keys: DataKeys) -> Iterator[Profile]:
    for order in orders:
        for profile_id in range(order.order_id, order.order_id + order.quantity):
            digits = f"89009{profile_id % 10**14:014d}"
            code = f"LPA:1$rsp.sandbox.example${secrets.token_hex(13).upper()}"
            sealed = keys.seal(code.encode(), profile_context(tenant_id, profile_id))
            yield Profile(
                profile_id,
                order.order_id,
                digits + iccid.luhn_digit(digits),
                sealed,
                secrets.token_urlsafe(16),
                order.package.data_bytes,
            )


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


def _row(number: int, order: Sold) -> tuple[object, ...]:
    at, package = identity.created_at(order.order_id), order.package
    delivered_at = at + timedelta(seconds=order.delivered_seconds)
    return number, order.order_id, package.package_code, order.quantity, package.price, order.amount, at, delivered_at


async def write(
    connection: Connection, keys: DataKeys, tenant_id: int, orders: Sequence[Sold], since: datetime
) -> None:
    """Writes these orders for a dealer who has none yet and whose wallet covers them, in the caller's transaction. The
    dealer, and all that stands in the wallet, is from `since` on."""
    for stage in _STAGES:
        await connection.execute(stage)
    await connection.copy_records_to_table("sold", records=[_row(number, one) for number, one in enumerate(orders, 1)])
    await connection.copy_records_to_table("sold_profile", records=_profiles(orders, tenant_id, keys))
    await connection.execute("UPDATE credential SET created_at = $2 WHERE tenant_id = $1", tenant_id, since)
    await connection.execute("UPDATE tenant SET created_at = $2 WHERE tenant_id = $1", tenant_id, since)
    await connection.execute("UPDATE ledger_entry SET created_at = $2 WHERE tenant_id = $1", tenant_id, since)
    for statement in _WRITES:
        await connection.execute(statement, tenant_id)
    await connection.execute(_IDS)
    await connection.execute("DROP TABLE sold, sold_profile")
