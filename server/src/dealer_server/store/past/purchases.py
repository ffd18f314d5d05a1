"""What remote suppliers made of orders of days that are over, written as the worker would have left it: a new
`dealer-server dev` begins with it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.connection import Connection

_PURCHASE = (
    *("tenant_id", "profile_id", "position", "order_id", "line", "unit_key", "supplier", "sku", "cost"),
    *("cost_currency", "state", "supplier_ref", "unit_ref", "iccid", "calls", "reason", "created_at", "finished_at"),
)
_CALL = (
    *("tenant_id", "profile_id", "position", "number", "supplier", "kind", "step", "sent_at", "answered_at", "outcome"),
    "message",
)


class PastCall(NamedTuple):
    step: str
    sent_at: datetime
    answered_at: datetime
    outcome: str


class PastPurchase(NamedTuple):
    """An attempt to buy one eSIM; `reason`: why it was refused, None where it was not. `reference`: of order and eSIM
    at the supplier, None where it was refused."""

    tenant_id: int
    profile_id: int
    position: int
    order_id: int
    unit_key: str
    supplier: str
    sku: str
    cost: int
    currency: str
    state: Literal["DONE", "REJECTED"]
    reference: str | None
    iccid: str | None
    reason: str | None
    calls: Sequence[PastCall]


async def write(connection: Connection, purchases: Sequence[PastPurchase]) -> None:
    """In the caller's transaction; their profiles are there."""
    await connection.copy_records_to_table(
        "purchase",
        columns=_PURCHASE,
        records=[
            (
                one.tenant_id, one.profile_id, one.position, one.order_id, 0, one.unit_key, one.supplier, one.sku,
                one.cost, one.currency, one.state, one.reference, one.reference, one.iccid, len(one.calls), one.reason,
                one.calls[0].sent_at, one.calls[-1].answered_at,
            )
            for one in purchases
        ],
    )  # fmt: skip
    await connection.copy_records_to_table(
        "supplier_call",
        columns=_CALL,
        records=[
            (
                one.tenant_id, one.profile_id, one.position, number, one.supplier, "ALLOCATE", call.step, call.sent_at,
                call.answered_at, call.outcome, one.reason or "",
            )
            for one in purchases
            for number, call in enumerate(one.calls, 1)
        ],
    )  # fmt: skip
