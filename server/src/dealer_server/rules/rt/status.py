"""How does an eSIM stand in the RT family's words?"""

from typing import Literal

from dealer_server.rules.orders.model import Profile

Reader = Literal["QUERY", "WEBHOOK"]
"""Where a word is read: the family says REVOKE in queries and REVOKED in webhooks."""

RELEASED = "RELEASED"
NOT_STARTED = "GOT_RESOURCE"
_REVOKED = ("REVOKE", "REVOKED")
_ENDS = ("USED_UP", "USED_EXPIRED", "UNUSED_EXPIRED")
_SMDP = {"DELIVERED": RELEASED, "ACTIVATING": "INSTALLATION", "ACTIVATED": "ENABLED"}


def esim_status(profile: Profile, reader: Reader) -> str:
    """esimStatus of an eSIM that has its codes."""
    if profile.refunded:
        return "CANCEL"
    if profile.cancelled:
        return "CANCEL" if profile.esim_status == "CANCEL" else _revoked(reader)
    if profile.plan_use_status == "ENDED":
        return _ended(profile)
    if profile.shows_suspended:
        return "SUSPENDED"
    if profile.plan_use_status == "STARTED":
        return "IN_USE"
    return profile.esim_status or NOT_STARTED


def smdp_status(profile: Profile) -> str:
    """smdpStatus: the SM-DP+'s word, else what the eSIM's life says."""
    if profile.smdp_status:
        return profile.smdp_status
    return "ENABLED" if profile.plan_use_status == "STARTED" else _SMDP.get(profile.lifecycle_status, "")


def is_unused(profile: Profile) -> bool:
    """Whether esim/cancel may take it back: neither installed nor used."""
    return (
        profile.plan_use_status == "NOT_STARTED"
        and profile.data_usage_bytes == 0
        and not profile.activated
        and smdp_status(profile) == RELEASED
    )


def _revoked(reader: Reader) -> str:
    return "REVOKE" if reader == "QUERY" else "REVOKED"


def _ended(profile: Profile) -> str:
    """By its supplier's word, else by its figures."""
    if profile.esim_status in _ENDS:
        return profile.esim_status
    if profile.data_total_bytes is not None and profile.data_usage_bytes >= profile.data_total_bytes:
        return "USED_UP"
    return "UNUSED_EXPIRED" if profile.plan_use_start_at is None else "USED_EXPIRED"
