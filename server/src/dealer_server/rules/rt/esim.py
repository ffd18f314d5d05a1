"""What is an eSIM in the RT family's esimList?"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from dealer_server.rules.catalogue.package import Package, sold_by_day
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import AppliedPlan, Item, Order, Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.rt import status
from dealer_server.rules.rt.package import ACTIVATION_TYPES, DATA_TYPES, SMS_STATUS, volume_of

DAY_SECONDS = 86_400
PackageOf = Callable[[str], Package | None]


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """One plan of an eSIM: the one it was sold with, or a recharge."""

    package_name: str
    package_code: str
    slug: str
    duration: int
    volume: int
    location_code: str
    create_time: str


class Esim(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of esimList. Times without a value are null."""

    esim_tran_no: str
    order_no: str
    transaction_id: str
    iccid: str
    ac: str
    qr_code_url: str
    short_url: str
    sms_status: int
    smdp_status: str
    active_type: int
    data_type: int
    activate_time: str | None
    installation_time: str | None
    expired_time: str | None
    total_volume: int
    total_duration: int
    duration_unit: str
    order_usage: int
    esim_status: str
    package_list: tuple[Plan, ...]
    imsi: str = ""
    msisdn: str = ""
    eid: str = ""
    pin: str = ""
    puk: str = ""
    apn: str = ""


class Totals(msgspec.Struct, frozen=True):
    """All plans of an eSIM together, those that wait included; days: how long they last. volume: 0 is unlimited.
    expires_at: the end of the plan in use; before that, when the eSIM expires unused."""

    volume: int
    days: int
    expires_at: datetime | None


@lru_cache(4096)
def time_text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}+0000"


def esim(order: Order, item: Item, profile: Profile, package_of: PackageOf, links: Links, sends_sms: bool) -> Esim:
    """An eSIM that has its codes."""
    package, sums = package_of(item.package_code), totals(order, item, profile, package_of)
    assert profile.iccid is not None and profile.activation_code is not None
    return Esim(
        esim_tran_no=str(profile.profile_id),
        order_no=order.order_no,
        transaction_id=order.transaction_id,
        iccid=profile.iccid,
        ac=profile.activation_code,
        qr_code_url=snapshot.qr_code_url(profile, order.tenant_id, links),
        short_url=snapshot.install_page_url(profile, order.tenant_id, links),
        sms_status=SMS_STATUS[sends_sms],
        smdp_status=status.smdp_status(profile),
        active_type=ACTIVATION_TYPES[package.activation_type] if package else 1,
        data_type=DATA_TYPES[package.data_type] if package else 1,
        activate_time=time_text(profile.plan_use_start_at) if profile.plan_use_start_at else None,
        installation_time=None,
        expired_time=time_text(sums.expires_at) if sums.expires_at else None,
        total_volume=sums.volume,
        total_duration=sums.days,
        duration_unit="DAY",
        order_usage=profile.data_usage_bytes,
        esim_status=status.esim_status(profile, "QUERY"),
        package_list=_plans(order, item, profile, package_of),
    )


def totals(order: Order, item: Item, profile: Profile, package_of: PackageOf) -> Totals:
    package = package_of(item.package_code)
    waiting = [plan for plan in profile.plans if plan.waits]
    volumes = [profile.data_total_bytes, *[plan.data_bytes for plan in waiting]]
    added = [plan for plan in profile.plans[1:] if not plan.cancelled]
    days = item.period_num if package is None or sold_by_day(package.data_type) else package.duration
    return Totals(
        volume=0 if None in volumes else sum([volume or 0 for volume in volumes]),
        days=days + sum([_added_days(plan, package_of(plan.package_code)) for plan in added]),
        expires_at=profile.plan_use_end_at or _unused_until(order, package),
    )


def _added_days(plan: AppliedPlan, package: Package | None) -> int:
    if package is not None and not sold_by_day(package.data_type):
        return package.duration
    return round((plan.seconds or 0) / DAY_SECONDS)


def _unused_until(order: Order, package: Package | None) -> datetime | None:
    """Codes come soon after the order, which is taken for their delivery, as the install page does."""
    if package is None or not package.unused_valid_days:
        return None
    return identity.created_at(order.order_id) + timedelta(days=package.unused_valid_days)


def _plans(order: Order, item: Item, profile: Profile, package_of: PackageOf) -> tuple[Plan, ...]:
    added = [(plan.package_code, plan.order_id) for plan in profile.plans[1:] if not plan.cancelled]
    return tuple(
        [
            _plan(code, package_of(code), identity.created_at(order_id))
            for code, order_id in [(item.package_code, order.order_id), *added]
        ]
    )


def _plan(package_code: str, package: Package | None, bought_at: datetime) -> Plan:
    return Plan(
        package_name=package.package_name if package else package_code,
        package_code=package_code,
        slug=package.slug if package else "",
        duration=package.duration if package else 0,
        volume=volume_of(package) if package else 0,
        location_code=package.location_code if package else "",
        create_time=time_text(bought_at),
    )
