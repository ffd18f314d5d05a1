"""How far is an eSIM, for the traveller who has it?"""

from datetime import datetime, timedelta
from typing import Literal, Protocol, get_args

from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.lifecycle.use import Esim, is_installed
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Profile

Stage = Literal["READY", "INSTALLED", "ACTIVE", "ENDED", "REMOVED", "REFUNDING", "VOID"]
"""Codes are shown of one that is READY alone. ACTIVE: its plan is in use. REMOVED: it was deleted from its phone.
REFUNDING: a refund of it is under way."""
STAGES: tuple[Stage, ...] = get_args(Stage)


class Bought(Esim, Protocol):
    """What of an eSIM tells whether it waits to be used."""

    @property
    def iccid(self) -> str | None: ...
    @property
    def refunded(self) -> bool: ...
    @property
    def held(self) -> bool: ...


def stage(profile: Profile) -> Stage:
    """Of an eSIM that has its codes."""
    if profile.cancelled or profile.refunded:
        return "VOID"
    if profile.plan_use_status == "ENDED":
        return "ENDED"
    if profile.smdp_status == "DELETED":
        return "REMOVED"
    if profile.plan_use_status == "STARTED":
        return "ACTIVE"
    if is_downloaded(profile):
        return "INSTALLED"
    return "REFUNDING" if profile.held else "READY"


def use_by(profile: Bought, order_id: int, package: Package | None) -> datetime | None:
    """When it expires unless it is used (specification 3.4); None once it is in use, and where the package of its order
    is not known."""
    if package is None or not package.unused_valid_days or not is_unused(profile):
        return None
    return identity.created_at(order_id) + timedelta(days=package.unused_valid_days)


def is_unused(esim: Bought) -> bool:
    """Delivered and valid, its plan has not begun."""
    void = esim.refunded or esim.held or esim.lifecycle_status == "CANCELLED" or esim.smdp_status == "DELETED"
    return esim.iccid is not None and esim.plan_use_status == "NOT_STARTED" and not void


def days_left(profile: Profile, now: datetime) -> int | None:
    """Days until the plan in use ends, the one that has begun too, as the console counts them; 0: less than a day.
    None where none is in use, or its end is not known."""
    if stage(profile) != "ACTIVE" or profile.plan_use_end_at is None:
        return None
    left = profile.plan_use_end_at - now
    return 0 if left < timedelta(days=1) else -(-left // timedelta(days=1))


def is_downloaded(profile: Profile) -> bool:
    """A phone has it, as far as its supplier reports; its code is used up."""
    return profile.activated or is_installed(profile)
