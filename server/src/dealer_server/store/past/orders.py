"""Orders of days that are over, written as the service itself would have left them: a new `dealer-server dev` begins
with them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import fields_of
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.rules.lifecycle import lifecycle
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.rules.refunds.refund import Part
from dealer_server.store.profiles import daily_usage
from dealer_server.store.wallets.topup import Topup
from esim_dealer.wire.vocabulary import EventType

DIGEST = bytes(16)
_SIMULATED = "simulated"  # goes on with the lives of eSIMs, whoever made them
Rows = list[tuple[Any, ...]]


class Entry(NamedTuple):
    """An entry of a wallet. The fields are columns of ledger_entry."""

    version: int
    entry_type: str
    reference: int
    amount: int
    balance_after: int
    created_at: datetime


class PastRefund(NamedTuple):
    """A refund. `settled_at`: when it was credited, None while it is in review."""

    refund_id: int
    scope: bytes
    parts: Sequence[Part]
    remark: str
    author: str
    created_at: datetime
    settled_at: datetime | None


class Told(NamedTuple):
    """What a dealer was told, and the order as it was then."""

    event_type: EventType
    order: Order
    at: datetime


class PastOrder(NamedTuple):
    """An order of one line as it stands now; its tenant_id is not that of its dealer. `lives`: of its eSIMs, by
    profileId; `reported`: when one last changed. `told`: in the order of time."""

    order: Order
    delivered_at: datetime | None
    lives: Mapping[int, Lifecycle]
    told: Sequence[Told]
    refund: PastRefund | None = None
    reported: Mapping[int, datetime] = {}
    remark: str | None = None


_TABLES: Mapping[str, str] = {
    "orders": "tenant_id order_id transaction_id digest currency amount refund_amount pay_status delivery_status"
    " order_status version remark updated_at",
    "ledger_entry": " ".join(("tenant_id", *fields_of(Entry))),
    "order_item": "tenant_id order_id line package_code supplier quantity period_num price first_profile_id"
    " item_status",
    "profile": "tenant_id profile_id order_id line lifecycle_status failed refunded held activated cancelled iccid"
    " activation_code qr_token esim_status smdp_status plan_use_status plan_use_start_at plan_use_end_at"
    " data_total_bytes data_usage_bytes updated_at",
    "profile_life": "tenant_id profile_id order_id line supplier iccid unused_until plan_seconds smdp_at esim_at"
    " ended_at valid_until live_status live_at suspended_word_at resumed_word_at daily_usage reported_at"
    " created_at due_at",
    "refund": "tenant_id refund_id order_id scope status amount credited remark author created_at settled_at",
    "refund_line": "tenant_id refund_id profile_id line amount way status",
    "topup": " ".join(fields_of(Topup)),
}
"""In the order of their foreign keys: the columns that are written."""
_SINCE = (
    "UPDATE tenant SET created_at = $2 WHERE tenant_id = $1",
    "UPDATE credential SET created_at = $2 WHERE tenant_id = $1",
    "UPDATE ledger_entry SET created_at = $2 WHERE tenant_id = $1",
)
_WALLET = """
UPDATE wallet SET balance = $2, version = $3, updated_at = $4, order_count = order_count + $5,
 profile_count = profile_count + $6
WHERE tenant_id = $1
"""
_IDS = "UPDATE id_block SET next = greatest(next, $2) WHERE kind = $1"


async def write(
    connection: Connection,
    keys: DataKeys,
    tenant_id: int,
    orders: Sequence[PastOrder],
    topups: Sequence[Topup],
    since: datetime,
) -> Sequence[Entry]:
    """Writes them in the caller's transaction, for a dealer who has none and whose wallet covers them; gives their
    entries. The dealer, and what stands in the wallet so far, is from `since` on. Of `topups` the tenant_id does not
    count."""
    for statement in _SINCE:
        await connection.execute(statement, tenant_id, since)
    wallet = await connection.fetchrow("SELECT version, balance FROM wallet WHERE tenant_id = $1", tenant_id)
    assert wallet is not None, "a dealer has a wallet"
    entries = _entries(orders, topups, wallet["version"], wallet["balance"])
    rows = {
        "orders": [_order(one.order, one.remark) for one in orders],
        "ledger_entry": entries,
        "order_item": [_item(one.order) for one in orders],
        "profile": [row for one in orders for row in _profiles(one, tenant_id, keys)],
        "profile_life": [row for one in orders for row in _lives(one)],
        "refund": [_refund(one.order.order_id, one.refund) for one in orders if one.refund],
        "refund_line": [row for one in orders if one.refund for row in _refund_lines(one.refund)],
        "topup": [one[1:] for one in topups],
    }
    for table, columns in _TABLES.items():
        records = [(tenant_id, *row) for row in rows[table]]
        await connection.copy_records_to_table(table, records=records, columns=columns.split())
    profiles = len(rows["profile"])
    last = entries[-1]
    moved = last.balance_after, last.version, last.created_at
    await connection.execute(_WALLET, tenant_id, *moved, len(orders), profiles)
    await _keep_ids(connection, orders, topups)
    return entries


def _order(order: Order, remark: str | None) -> tuple[Any, ...]:
    return (
        order.order_id, order.transaction_id, DIGEST, order.currency, order.amount, order.refund_amount,
        order.pay_status, order.delivery_status, order.order_status, order.version, remark, order.updated_at,
    )  # fmt: skip


def _entries(orders: Sequence[PastOrder], topups: Sequence[Topup], version: int, balance: int) -> list[Entry]:
    """Debits and credits in the order of time, after the `version` that the wallet has."""
    moved = [(identity.created_at(one.order.order_id), "ORDER_PAY", one.order.order_id, -one.order.amount)
             for one in orders]  # fmt: skip
    moved += [(one.refund.settled_at, "REFUND", one.refund.refund_id, one.order.refund_amount)
              for one in orders if one.refund and one.refund.settled_at]  # fmt: skip
    moved += [(one.reviewed_at, "TOPUP", one.topup_id, one.amount)
              for one in topups if one.reviewed_at is not None and one.status == "APPROVED"]  # fmt: skip
    entries: list[Entry] = []
    for at, entry_type, reference, amount in sorted(moved):
        version, balance = version + 1, balance + amount
        entries.append(Entry(version, entry_type, reference, amount, balance, at))
    return entries


def _item(order: Order) -> tuple[Any, ...]:
    [item] = order.items
    return (
        order.order_id, item.line, item.package_code, item.supplier, item.quantity, item.period_num, item.price,
        item.first_profile_id, item.item_status,
    )  # fmt: skip


def _profiles(past: PastOrder, tenant_id: int, keys: DataKeys) -> Rows:
    return [
        (
            one.profile_id, past.order.order_id, 0, one.lifecycle_status, one.failed, one.refunded, one.held,
            one.activated, one.cancelled, one.iccid,
            one.activation_code and keys.seal(one.activation_code.encode(), profile_context(tenant_id, one.profile_id)),
            one.qr_token, one.esim_status, one.smdp_status, one.plan_use_status, one.plan_use_start_at,
            one.plan_use_end_at, one.data_total_bytes, one.data_usage_bytes, past.order.updated_at,
        )
        for one in past.order.profiles
    ]  # fmt: skip


def _lives(past: PastOrder) -> Rows:
    return [
        (
            one.profile_id, past.order.order_id, 0, _SIMULATED, one.iccid, life.unused_until,
            life.plan_seconds, life.smdp_at, life.esim_at, life.ended_at, life.valid_until, life.live_status,
            life.live_at, life.suspended_word_at, life.resumed_word_at, daily_usage.written(life.daily_usage),
            past.reported.get(one.profile_id),
            past.delivered_at, lifecycle.next_due(one, life, None, timed=True),
        )
        for one in past.order.profiles
        if (life := past.lives.get(one.profile_id)) is not None
    ]  # fmt: skip


def _refund(order_id: int, made: PastRefund) -> tuple[Any, ...]:
    amount = sum(part.amount for part in made.parts)
    status, credited = ("REFUNDED", amount) if made.settled_at else ("REFUNDING", 0)
    return (
        made.refund_id, order_id, made.scope, status, amount, credited, made.remark, made.author, made.created_at,
        made.settled_at,
    )  # fmt: skip


def _refund_lines(made: PastRefund) -> Rows:
    status = "COMPLETED" if made.settled_at else "PENDING"
    return [(made.refund_id, part.profile_id, part.line, part.amount, part.way, status) for part in made.parts]


async def _keep_ids(connection: Connection, orders: Sequence[PastOrder], topups: Sequence[Topup]) -> None:
    """None of them is given again."""
    profile_id = max(profile.profile_id for one in orders for profile in one.order.profiles)
    await connection.execute(_IDS, "order", profile_id + 1)
    await connection.execute(_IDS, "profile", profile_id + 1)
    if refunds := [one.refund.refund_id for one in orders if one.refund]:
        await connection.execute(_IDS, "refund", max(refunds) + 1)
    if topups:
        await connection.execute(_IDS, "topup", max(one.topup_id for one in topups) + 1)
