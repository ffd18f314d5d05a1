"""What does a traveller see of an eSIM? Whoever has the address of its install page: the token in it is the only proof.

Nothing is written, and no supplier is asked: programs that scan mail open every address in it.
"""

import hmac
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.rules.brand.brand import Brand
from dealer_server.rules.catalogue.countries import COUNTRIES
from dealer_server.rules.catalogue.package import Package, sold_by_day
from dealer_server.rules.esim import activation_code
from dealer_server.rules.esim.activation_code import ActivationCode
from dealer_server.rules.install.stage import Stage, days_left, stage, use_by
from dealer_server.rules.lifecycle.daily_usage import DayUsage, by_day
from dealer_server.rules.orders import install_token, plans, snapshot
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.profiles import daily_usage, install
from dealer_server.store.profiles.daily_usage import Reported
from dealer_server.store.profiles.install import Installable
from esim_dealer.wire.snapshot import InstallUrls
from esim_dealer.wire.vocabulary import ActivationType, PlanStatus

_NO_TOKEN = "-" * 22


class Codes(NamedTuple):
    """What installs the eSIM."""

    code: ActivationCode
    links: InstallUrls


class ShownPlan(NamedTuple):
    """A plan of an eSIM that was recharged. total_bytes: None is unlimited."""

    name: str
    status: PlanStatus
    total_bytes: int | None
    used_bytes: int
    started_at: datetime | None
    ends_at: datetime | None


class ShownNetwork(NamedTuple):
    """A country of the package. country: in English; operators: such as "Orange 5G, SFR 4G"."""

    code: str
    country: str
    operators: str


class InstallPage(NamedTuple):
    """codes: while it can be installed, else None. name: of its package; place, period (in days), apn, activation_type:
    "" or None where the package is not known any more. total_bytes: None where its supplier reports none, or it is
    unlimited; used_bytes: None where it reports none. use_by: when it expires unused. days_left: whole days until its
    plan ends, while it is in use. reported_at: when its supplier last reported its usage. days: what was used on each
    day, as far as it is known. plans: () until it was recharged."""

    stage: Stage
    suspended: bool
    codes: Codes | None
    iccid: str
    name: str
    place: str
    volume_bytes: int | None
    by_day: bool
    period: int | None
    apn: str
    activation_type: ActivationType | None
    total_bytes: int | None
    used_bytes: int | None
    started_at: datetime | None
    ends_at: datetime | None
    use_by: datetime | None
    days_left: int | None
    reported_at: datetime | None
    days: Sequence[DayUsage]
    networks: Sequence[ShownNetwork]
    plans: Sequence[ShownPlan]
    brand: Brand


async def install_page(
    database: Database,
    data_keys: DataKeys,
    catalogue: Callable[[], Catalogue],
    links: Links,
    now: Callable[[], datetime],
    text: str,
) -> InstallPage | None:
    """`text`: what follows /i/. A wrong token and an unknown profile give the same answer, None."""
    token = install_token.parse(text)
    if token is None:
        return None
    async with database.connection() as connection:
        found = await install.find(connection, token.tenant_id, token.profile_id, data_keys)
        expected = (found.profile.qr_token if found else None) or _NO_TOKEN
        if not hmac.compare_digest(expected.encode(), token.qr_token.encode()) or found is None:
            return None
        in_use = stage(found.profile) in ("ACTIVE", "ENDED")
        reported = await daily_usage.of_profile(connection, token.tenant_id, token.profile_id) if in_use else Reported()
    return _shown(found, reported, token.tenant_id, catalogue(), links, now())


def _shown(
    found: Installable, reported: Reported, tenant_id: int, catalogue: Catalogue, links: Links, now: datetime
) -> InstallPage:
    profile, item = found.profile, found.item
    package = catalogue.package(item.package_code)
    known = snapshot.profile(profile, item, tenant_id, links)
    at = stage(profile)
    used = known.data_usage_bytes if isinstance(known.data_usage_bytes, int) else None
    return InstallPage(
        stage=at,
        suspended=profile.shows_suspended,
        codes=_codes(found, known.install_urls or None) if at == "READY" else None,
        iccid=profile.iccid or "",
        name=package.package_name if package else "",
        place=package.location_name if package else "",
        volume_bytes=package.data_bytes if package else None,
        by_day=package is not None and sold_by_day(package.data_type),
        period=_period(package, item.period_num) if package else None,
        apn=package.apn if package else "",
        activation_type=package.activation_type if package else None,
        total_bytes=None if used is None else profile.data_total_bytes,
        used_bytes=used,
        started_at=profile.plan_use_start_at,
        ends_at=profile.plan_use_end_at,
        use_by=use_by(profile, found.order_id, package),
        days_left=days_left(profile, now),
        reported_at=reported.at,
        days=by_day(reported.days),
        networks=_networks(package) if package and at in ("READY", "INSTALLED", "ACTIVE") else (),
        plans=_plans(found, catalogue),
        brand=found.brand,
    )


def _networks(package: Package) -> Sequence[ShownNetwork]:
    return sorted(
        [
            ShownNetwork(
                network.location_code,
                known.name if (known := COUNTRIES.get(network.location_code)) else network.location_code,
                ", ".join(f"{one.operator_name} {one.network_type}" for one in network.operators),
            )
            for network in package.networks
        ],
        key=lambda network: network.country,
    )


def _codes(found: Installable, links: InstallUrls | None) -> Codes | None:
    text = found.profile.activation_code
    return None if text is None or links is None else Codes(activation_code.parse(text), links)


def _period(package: Package, period_num: int) -> int:
    """How many days its plan lasts."""
    return period_num if sold_by_day(package.data_type) else package.duration


def _plans(found: Installable, catalogue: Catalogue) -> Sequence[ShownPlan]:
    if not found.profile.plans:
        return ()
    return [
        ShownPlan(
            name=package.package_name if (package := catalogue.package(plan.package_code)) else plan.package_code,
            status=plan.status,
            total_bytes=plan.total_bytes,
            used_bytes=plan.used_bytes,
            started_at=plan.started_at,
            ends_at=plan.ends_at,
        )
        for plan in plans.applied(found.profile)
    ]
