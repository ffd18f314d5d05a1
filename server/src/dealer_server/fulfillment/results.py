"""What does a supplier's outcome give a profile? Its codes, its recharge, its failure, or nothing
yet."""

import secrets
from datetime import datetime

from dealer_server.rules.delivery.delivery import AddedPlan, Codes, Failed, Result
from dealer_server.rules.orders.model import Order
from dealer_server.store.refunds.void import Void
from dealer_server.suppliers.contract import Applied, Done, Outcome, Rejected, Unit


def result_of(outcome: Outcome, unit: Unit) -> Result | None:
    """At a supplier that is the only one for its unit: what it refuses for good has failed. None: nothing is sure."""
    if isinstance(outcome, Done | Applied):
        return made_of(outcome, unit)
    return Failed() if isinstance(outcome, Rejected) and outcome.code != "TEMPORARY" else None


def made_of(outcome: Done | Applied, unit: Unit) -> Codes | AddedPlan:
    if isinstance(outcome, Done):
        return codes_of(outcome, unit.data_bytes)
    return AddedPlan(outcome.mode, unit.data_bytes, unit.plan_seconds, outcome.ends_at, outcome.queued_begun)


def codes_of(outcome: Done, data_bytes: int | None) -> Codes:
    return Codes(
        iccid=outcome.iccid,
        activation_code=outcome.activation_code,
        qr_token=qr_token(),
        esim_status=outcome.esim_status,
        smdp_status=outcome.smdp_status,
        data_total_bytes=data_bytes,
    )


def qr_token() -> str:
    """The secret part of a QR code's address."""
    return secrets.token_urlsafe(16)


def void_of(order: Order, line: int, profile_id: int, supplier: str, iccid: str, now: datetime) -> Void:
    """Asks the supplier to void what it made for a profile that is void by now."""
    return Void(
        tenant_id=order.tenant_id,
        profile_id=profile_id,
        order_id=order.order_id,
        line=line,
        refund_id=None,
        supplier=supplier,
        package_code=order.items[line].package_code,
        iccid=iccid,
        created_at=now,
        claims=0,
    )
