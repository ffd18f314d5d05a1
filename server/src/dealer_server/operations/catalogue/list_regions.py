"""Where are packages on sale? /region/list (specification 2.8, 4.9)"""

from collections.abc import Iterable

from dealer_server.rules.catalogue.countries import COUNTRIES
from dealer_server.rules.catalogue.package import Package
from esim_dealer.wire import calls


def list_regions(on_sale: Iterable[Package], call: calls.RegionList) -> calls.Regions:
    """Every location of these packages, by its code."""
    by_location: dict[str, list[Package]] = {}
    for package in on_sale:
        if call.type in (None, package.location_type):
            by_location.setdefault(package.location_code, []).append(package)
    keyword = (call.keyword or "").casefold()
    regions = [_region(packages[0], len(packages)) for _, packages in sorted(by_location.items())]
    return calls.Regions(
        regions=tuple(
            region
            for region in regions
            if keyword in region.region_name.casefold() or keyword in region.region_code.casefold()
        )
    )


def _region(package: Package, count: int) -> calls.Region:
    is_country = package.location_type == "COUNTRY"
    return calls.Region(
        region_code=package.location_code,
        region_name=package.location_name,
        type=package.location_type,
        continent=package.continent,
        package_count=count,
        sub_regions=()
        if is_country
        else tuple(calls.SubRegion(region_code=code, region_name=COUNTRIES[code].name) for code in package.locations),
    )
