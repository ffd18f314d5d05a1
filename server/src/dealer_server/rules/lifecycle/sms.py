"""May an SMS be sent to a profile, and what becomes of one after an attempt to send it? (specification 4.16)

An SMS that may have been sent is sent again only where its supplier knows a repeat by its key
(docs/decisions/0031-sms.md).
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.rules import refusal
from esim_dealer.wire.vocabulary import LifecycleStatus, PlanUseStatus, SmsFailReason, SmsStatus

INTERVAL = timedelta(minutes=1)
# What could not be sent for so long is of no use to its reader any more.
PATIENCE = timedelta(hours=1)
_INSTALLED = ("INSTALLATION", "ENABLED", "DISABLED")


class Recipient(NamedTuple):
    """A profile that an SMS is for. `kind`: of its supplier, None where it is a built-in one. superseded: its ICCID is
    a later profile's by now."""

    profile_id: int
    order_id: int
    supplier: str
    kind: str | None
    iccid: str | None
    lifecycle_status: LifecycleStatus
    plan_use_status: PlanUseStatus
    smdp_status: str | None
    cancelled: bool
    superseded: bool


def refuse(recipient: Recipient, supported: bool) -> refusal.Refusal | None:
    """Why no SMS can be sent to it: 200022, 200010, 200002. `supported`: its supplier sends SMS."""
    if not supported:
        return refusal.NotSupported("the package's supplier sends no SMS")
    if recipient.iccid is None and not recipient.cancelled:
        return refusal.NotAllocated()
    if recipient.cancelled:
        return refusal.StatusForbids("the profile is void")
    if recipient.plan_use_status == "ENDED" or recipient.superseded:
        return refusal.StatusForbids("the profile is over")
    if not _is_installed(recipient):
        return refusal.StatusForbids("the profile is not installed on a device")
    return None


def _is_installed(recipient: Recipient) -> bool:
    if recipient.smdp_status == "DELETED":
        return False
    return recipient.lifecycle_status == "ACTIVATED" or recipient.smdp_status in _INSTALLED


def refuse_soon(latest_at: datetime | None, now: datetime) -> refusal.Refusal | None:
    """101013 until a minute after the profile's latest SMS."""
    left = timedelta(0) if latest_at is None else latest_at + INTERVAL - now
    if left <= timedelta(0):
        return None
    seconds = min(-(-left // timedelta(seconds=1)), 60)
    return refusal.SmsTooSoon(
        f"one SMS a minute to each profile; the next one in {seconds} s at the earliest", retry_after=seconds
    )


class Next(NamedTuple):
    """What an SMS is after an attempt. `due_at`: when it is tried again; PENDING alone has it. `in_doubt`: it may have
    been sent. `detail`: for the operator."""

    status: SmsStatus
    fail_reason: SmsFailReason | None = None
    detail: str | None = None
    due_at: datetime | None = None
    in_doubt: bool = False


SENT = Next("SENT")


def failed(detail: str, *, in_doubt: bool) -> Next:
    return Next("FAILED", "UNKNOWN" if in_doubt else "NOT_SENT", detail, in_doubt=in_doubt)


def before_sending(created_at: datetime, in_doubt: bool, repeatable: bool, now: datetime) -> Next | None:
    """What becomes of an SMS that is not to be sent any more; None: it is sent now. `repeatable`: its supplier sends it
    once, however often it is asked with the same key."""
    if in_doubt and not repeatable:
        return failed("a call to the supplier was begun and nobody knows how it ended", in_doubt=True)
    if now - created_at > PATIENCE:
        return failed("it could not be sent within an hour", in_doubt=in_doubt)
    return None


def unanswered(reason: str, repeatable: bool, again_at: datetime) -> Next:
    """What it is after a call of which nobody knows what it did."""
    if repeatable:
        return Next("PENDING", detail=reason, due_at=again_at, in_doubt=True)
    return failed(reason, in_doubt=True)
