"""What is an order, as the rules see it? Frozen values, loaded by store and changed by copying."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from dealer_server.rules.orders import identity
from esim_dealer.wire.vocabulary import (
    DeliveryStatus,
    ItemStatus,
    LifecycleStatus,
    OrderStatus,
    PayStatus,
    PlanMode,
    PlanUseStatus,
)

STOCK = "stock"  # the supplier whose profiles an operator loads: they can be sold out, and have no reports


class AppliedPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One plan of an eSIM that was recharged: number 1 is the one it was sold with, the others its supplier applied.

    mode: ADD shares volume and end with the plan before it, QUEUE begins when that ends; None of number 1. order_id,
    package_code: by which it was bought. data_bytes: its volume, None is unlimited. seconds: how long it lasts.
    ends_at: when its eSIM ends, where its supplier said so as it applied it. begun_at: None while it waits.
    ended_before: when the plan before it ended, which may be before this one was applied; None where none had, or where
    that is not known.
    used_before: the eSIM's counter when it began. held: a pending refund names it, it does not begin meanwhile.
    cancelled: it was refunded before it began.
    """

    plan_no: int
    mode: PlanMode | None
    order_id: int
    package_code: str
    data_bytes: int | None = None
    seconds: int | None = None
    ends_at: datetime | None = None
    applied_at: datetime | None = None
    begun_at: datetime | None = None
    ended_before: datetime | None = None
    used_before: int = 0
    held: bool = False
    cancelled: bool = False

    @property
    def waits(self) -> bool:
        """It is to begin when the plan before it ends."""
        return self.mode == "QUEUE" and self.begun_at is None and not self.cancelled


def generation(plans: Sequence[AppliedPlan]) -> int:
    """How many plans of an eSIM have begun, the one it was sold with among them."""
    return 1 + sum([plan.begun_at is not None for plan in plans[1:]])


class Profile(msgspec.Struct, frozen=True):
    """One eSIM bought, or one recharge of an eSIM. `failed`: fulfillment failed for good. `held`: a pending refund
    names it. iccid, activation_code and qr_token come together. `suspended`: by the latest word of it; `suspended_at`:
    since when, if told.

    A recharge names the eSIM by `recharges` and never has codes; `plan_no` counts the plans of that eSIM, `plan_mode`
    says how its supplier added this one, once it has, and data_total_bytes how much. `plans` of an eSIM: () until it
    was recharged; then in the order in which they begin. Its volume and usage are those of the plans in use.
    """

    profile_id: int
    lifecycle_status: LifecycleStatus = "PENDING"
    failed: bool = False
    refunded: bool = False
    activated: bool = False
    cancelled: bool = False
    iccid: str | None = None
    activation_code: str | None = None
    qr_token: str | None = None
    esim_status: str | None = None
    smdp_status: str | None = None
    plan_use_status: PlanUseStatus = "NOT_STARTED"
    plan_use_start_at: datetime | None = None
    plan_use_end_at: datetime | None = None
    data_total_bytes: int | None = None
    data_usage_bytes: int = 0
    held: bool = False
    suspended: bool = False
    suspended_at: datetime | None = None
    recharges: int | None = None
    plan_no: int = 1
    plan_mode: PlanMode | None = None
    plans: tuple[AppliedPlan, ...] = ()

    @property
    def generation(self) -> int:
        return generation(self.plans)

    @property
    def used_before(self) -> int:
        """Its supplier's counter when the plans in use began."""
        return next((plan.used_before for plan in reversed(self.plans) if plan.mode == "QUEUE" and plan.begun_at), 0)

    @property
    def made(self) -> bool:
        """Its supplier has made it: it has its codes, or is a recharge that was applied."""
        return self.iccid is not None or self.plan_mode is not None

    @property
    def waiting(self) -> bool:
        """Fulfillment owes it its codes, or its recharge."""
        return self.lifecycle_status == "PENDING" and not self.failed and not self.held

    @property
    def queue_over(self) -> bool:
        """Whether the plans that wait have ended with it: it expired unused. Behind one that was used the next begins,
        once no pending refund holds it."""
        return self.plan_use_status == "ENDED" and self.plan_use_start_at is None

    @property
    def shows_suspended(self) -> bool:
        """Whether it is suspended and not over: the end outranks it."""
        return self.suspended and not self.over

    @property
    def over(self) -> bool:
        """It is void, or its plan has ended."""
        return self.cancelled or self.plan_use_status == "ENDED"

    @property
    def live(self) -> bool:
        """Neither refunded nor cancelled before delivery (specification 3.1)."""
        return not self.refunded and not (self.cancelled and not self.made)


class Item(msgspec.Struct, frozen=True):
    """One line of an order. `price` is the unit price paid, in ten-thousandths."""

    line: int
    package_code: str
    supplier: str
    quantity: int
    period_num: int
    price: int
    first_profile_id: int
    item_status: ItemStatus
    profiles: tuple[Profile, ...]


class Order(msgspec.Struct, frozen=True):
    """An order with its lines and profiles. Amounts in ten-thousandths; `version` grows with every change. `esim`: the
    one that it recharges, without its activation code; None where it sells eSIMs."""

    tenant_id: int
    order_id: int
    transaction_id: str
    currency: str
    amount: int
    refund_amount: int
    pay_status: PayStatus
    delivery_status: DeliveryStatus
    order_status: OrderStatus
    version: int
    updated_at: datetime
    items: tuple[Item, ...]
    esim: Profile | None = None

    @property
    def order_no(self) -> str:
        return identity.order_no(self.order_id)

    @property
    def recharges(self) -> int | None:
        """The profileId of the eSIM that this order recharges; None of one that sells eSIMs."""
        profiles = self.items[0].profiles  # none in the order of a trial webhook
        return profiles[0].recharges if profiles else None

    def named(self, profile: Profile) -> tuple[int, str | None]:
        """The profileId and ICCID by which its dealer knows a profile: a recharge goes by those of its eSIM."""
        if profile.recharges is None:
            return profile.profile_id, profile.iccid
        return profile.recharges, None if self.esim is None else self.esim.iccid

    @property
    def profiles(self) -> tuple[Profile, ...]:
        return tuple(profile for item in self.items for profile in item.profiles)

    def find_profile(self, profile_id: int) -> tuple[Item, Profile]:
        """A profile of the order, with its line."""
        return next(
            (item, profile) for item in self.items for profile in item.profiles if profile.profile_id == profile_id
        )


def changed_items(changes: Iterable[tuple[Order, Order]]) -> Iterator[tuple[Order, Item]]:
    """The lines whose status changed, with their order. `changes`: orders before and after."""
    for before, after in changes:
        for old, new in zip(before.items, after.items, strict=True):
            if new.item_status != old.item_status:
                yield after, new


def changed_profiles(changes: Iterable[tuple[Order, Order]]) -> Iterator[tuple[int, Profile]]:
    """The profiles that changed, with their tenant_id. `changes`: orders before and after."""
    for before, after in changes:
        for old, new in zip(before.profiles, after.profiles, strict=True):
            if new != old:
                yield after.tenant_id, new
