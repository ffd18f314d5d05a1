"""Which tools look and change nothing? Packages, prices, balance, orders, eSIMs, usage, webhook deliveries."""

from typing import Any

import msgspec

from esim_dealer.client import AsyncDealer
from esim_dealer.operations import profile_name
from esim_dealer.wire.calls import Delivery
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import DeliveryState, LifecycleStatus, LocationType, OrderStatus, PackageType

MOST_ROWS = 100
CODES = ("qrCodeUrl", "installPageUrl", "activationCode", "smdpAddress", "matchingId", "installUrls")


class ReadingTools:
    """Each method is a tool; its docstring is what the agent reads of it."""

    def __init__(self, dealer: AsyncDealer) -> None:
        self._dealer = dealer

    async def get_balance(self) -> dict[str, Any]:
        """The wallet: balance, what is available, currency. Amounts are decimal strings in major units."""
        return fields(await self._dealer.balance())

    async def list_regions(self, type: LocationType | None = None, keyword: str | None = None) -> dict[str, Any]:
        """Countries and regions that packages are sold for; their codes are the `location` of list_packages."""
        found = await self._dealer.regions(type, keyword)
        return {
            "regions": [
                {"code": region.region_code, "name": region.region_name, "packages": region.package_count}
                for region in found.regions
            ]
        }

    async def list_packages(
        self,
        location: str | None = None,
        keyword: str | None = None,
        type: PackageType | None = None,
        for_esim: str | None = None,
        limit: int = 20,
    ) -> dict[str, Any]:
        """Packages on sale with this dealer's prices. `location`: a country (ISO 3166-1, as JP) or region code.
        `for_esim`: an ICCID or profileId, for the packages that recharge it. `total` is how many there are."""
        chosen = _given(location_code=location, keyword=keyword, type=type)
        if for_esim is not None:
            chosen |= esim_name(for_esim)
        found = await self._dealer.packages(page_size=_rows(limit), **chosen)
        shown = ("packageCode", "packageName", "type", "locationCode", "price", "currency", "dataType", "dataBytes")
        shown += ("duration", "durationUnit", "minPeriodNum", "maxPeriodNum", "maxQuantity", "topUpSupport")
        packages = [{name: fields(package).get(name) for name in shown} for package in found.packages]
        return {"packages": packages, "total": found.pager.total}

    async def get_package(self, package_code: str) -> dict[str, Any]:
        """One package in full: price, volume, days, networks."""
        return fields(await self._dealer.package(package_code))

    async def list_orders(self, status: OrderStatus | None = None, limit: int = 20) -> dict[str, Any]:
        """Orders, newest first, without their eSIMs: get_order has them."""
        found = await self._dealer.orders(page_size=_rows(limit), **_given(order_status=status))
        orders = [{name: value for name, value in fields(order).items() if name != "items"} for order in found.orders]
        return {"orders": orders, "total": found.pager.total}

    async def get_order(
        self, order_no: str | None = None, transaction_id: str | None = None, include_codes: bool = False
    ) -> dict[str, Any]:
        """One order with its lines and eSIMs. `include_codes`: activation codes and QR links too; whoever has one can
        install the eSIM, so ask for them only to hand them to its buyer."""
        return order_fields(await self._dealer.query(order_no, transaction_id), include_codes)

    async def list_esims(
        self,
        order_no: str | None = None,
        iccid: str | None = None,
        lifecycle_status: LifecycleStatus | None = None,
        limit: int = 20,
        include_codes: bool = False,
    ) -> dict[str, Any]:
        """eSIMs bought, newest first, with their state and usage. `include_codes` as in get_order."""
        chosen = _given(order_no=order_no, iccid=iccid, lifecycle_status=lifecycle_status)
        found = await self._dealer.profiles(page_size=_rows(limit), **chosen)
        esims = [
            fields(record) | {"profile": _profile_fields(record.profile, include_codes)} for record in found.records
        ]
        return {"esims": esims, "total": found.pager.total}

    async def get_usage(self, esim: str, refresh: bool = False) -> dict[str, Any]:
        """Data used and left of an eSIM, named by ICCID or profileId. `refresh` has its supplier asked first."""
        return fields(await self._dealer.usage(**esim_name(esim), refresh=refresh))

    async def list_plans(self, esim: str) -> dict[str, Any]:
        """The plans of an eSIM, named by ICCID or profileId: the one it was sold with, and its recharges."""
        return fields(await self._dealer.plans(**esim_name(esim)))

    async def list_deliveries(
        self, order_no: str | None = None, status: DeliveryState | None = None, limit: int = 20
    ) -> dict[str, Any]:
        """Webhooks sent to the dealer's callback URL, newest first, each with its attempts."""
        found = await self._dealer.deliveries(page_size=_rows(limit), **_given(order_no=order_no, status=status))
        return {"deliveries": [_delivery_fields(each) for each in found.deliveries], "total": found.pager.total}

    @property
    def tools(self) -> list[Any]:
        return [
            *(self.get_balance, self.list_regions, self.list_packages, self.get_package, self.list_orders),
            *(self.get_order, self.list_esims, self.get_usage, self.list_plans, self.list_deliveries),
        ]


def fields(struct: msgspec.Struct) -> dict[str, Any]:
    """As on the wire, but each profileId is a text, so that it can be handed back; money stays text."""
    return _with_text_ids(msgspec.to_builtins(struct))


def _with_text_ids(value: Any, name: str = "") -> Any:
    """`name`: under which the value stands."""
    match value:
        case dict():
            return {name: _with_text_ids(held, name) for name, held in value.items()}
        case list() | tuple():
            return [_with_text_ids(each, name) for each in value]
        case int() if name in ("profileId", "profileIds"):
            return str(value)
        case _:
            return value


def order_fields(order: Snapshot, include_codes: bool) -> dict[str, Any]:
    items = [
        fields(item) | ({"profiles": [_profile_fields(each, include_codes) for each in item.profiles]})
        if item.profiles
        else fields(item)
        for item in order.items
    ]
    return fields(order) | {"items": items}


def _delivery_fields(delivery: Delivery) -> dict[str, Any]:
    """Without what the receiver answered: anybody's text, which may repeat activation codes."""
    shown = fields(delivery)
    for attempt in shown["attempts"]:
        attempt.pop("answerHead", None)
    return shown


def _profile_fields(profile: Profile, include_codes: bool) -> dict[str, Any]:
    return {name: value for name, value in fields(profile).items() if include_codes or name not in CODES}


def esim_name(esim: str) -> dict[str, Any]:
    """Raises ValueError."""
    if not (esim.isascii() and esim.isdecimal()):
        raise ValueError(f"{esim!r} names no eSIM: an ICCID or a profileId is accepted")
    return profile_name(esim)


def _given(**filters: object) -> dict[str, Any]:
    return {name: value for name, value in filters.items() if value is not None}


def _rows(limit: int) -> int:
    """Raises ValueError."""
    if not 1 <= limit <= MOST_ROWS:
        raise ValueError(f"limit {limit}: 1 to {MOST_ROWS} are accepted")
    return limit
