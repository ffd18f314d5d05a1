"""The routes of the catalogue: what a dealer can sell, and where it works. All are answered from memory."""

from dealer_server.api.routes.route import Parts, let_others_in, route
from dealer_server.operations.cache import Caller
from dealer_server.operations.catalogue.list_packages import parse_filter
from dealer_server.operations.recharges.fitting import fitting
from esim_dealer.wire import calls, operations

FIELDS = {
    "regions": "Ordered by regionCode.",
    "regionCode": "ISO 3166-1 alpha-2 for a country (XK is Kosovo), else the bundle's code.",
    "regionName": "In English.",
    "Region.type": "Whether it is a country, a region or global.",
    "RegionList.type": "Only these.",
    "continent": "Empty where it spans several.",
    "packageCount": "Packages on sale for you.",
    "subRegions": "The countries of a region.",
    "packages": "One page of them, the last changed first.",
    "catalogVersion": "Names the state of the catalogue.",
    "PackageList.catalogVersion": "The one you have: where it is still current, notModified is true.",
    "notModified": "Whether the catalogVersion sent is current; packages is then empty.",
    "packageCode": "What you order by.",
    "slug": "Its part of a web address.",
    "packageName": "In English.",
    "description": "In English.",
    "PackageList.type": "`BASE` or `TOPUP`.",
    "Package.type": "What kind of package it is.",
    "Package.status": "Whether it is on sale for you.",
    "locationType": "A country, a region or global.",
    "locationCode": "The country (ISO 3166-1 alpha-2) or region it is made for.",
    "PackageList.locationCode": "A country or region; also finds the regions that a country is part of.",
    "Network.locationCode": "The country.",
    "locations": "The countries it works in, ISO 3166-1 alpha-2.",
    "Package.price": "Your price of one unit; of one day for `DAILY_*`.",
    "retailPrice": "Recommended price for the end customer.",
    "dataType": "`TOTAL`: a volume for the whole duration. `DAILY_*`: a volume, or none, for each day.",
    "PackageList.dataType": "`TOTAL`, `DAILY_REDUCED`, `DAILY_CUTOFF` or `DAILY_UNLIMITED`.",
    "dataBytes": "The volume, of one day for `DAILY_*`; null where it is unlimited.",
    "fupSpeed": "The speed once the volume is used up.",
    "duration": "How many durationUnits; 1 for `DAILY_*`, which are ordered by periodNum.",
    "durationUnit": "Days.",
    "minPeriodNum": "Fewest days of a `DAILY_*` package.",
    "maxPeriodNum": "Most days of a `DAILY_*` package.",
    "unusedValidDays": "Days a profile that is not used stays valid.",
    "activationType": "When its days begin: with the installation, or with the first network.",
    "speed": "Network generations, such as 4G/5G.",
    "ipExport": "Country whose addresses the traffic carries; empty where not known.",
    "topUpSupport": "Whether its profiles can be topped up.",
    "maxQuantity": "Most units in an order line.",
    "networks": "Operators by country.",
    "operators": "The mobile networks used there.",
    "operatorName": "As it calls itself.",
    "networkType": "Its newest generation used, such as 5G.",
    "supportedFields": "Which optional profile fields its supplier fills.",
    "keyword": "Part of a name or code, in any case.",
    "supportTopUpType": "1: no. 2: yes. 3: yes, for a number of days (`periodNum`).",
    "topUpMode": "`ADD`: one volume and one end with what is left. `QUEUE`: begins after it.",
    "PackageList.profileId": "Only `TOPUP` packages for this eSIM.",
    "PackageList.iccid": "The same, by ICCID.",
    "forPackageCode": "Only `TOPUP` packages for eSIMs of this package.",
}


@route(
    operations.PACKAGE_LIST,
    summary="List sellable packages",
    description=(
        'Packages on sale for you, at your prices. All filters must match; `""` counts as absent. To keep a copy, ask'
        " with `updatedSince` (packages no longer on sale are then listed too, as `OFF_SALE`), or send the"
        " `catalogVersion` you have: where nothing changed, `notModified` is true and the list is empty.\n\n"
        "`TOPUP` packages recharge eSIMs (`/esim/topup`). Name an eSIM by `profileId` or `iccid`, or the package it was"
        " sold with by `forPackageCode`, to list those that fit."
    ),
    refusals=("000111", "310404"),
)
async def list_packages(parts: Parts, caller: Caller, call: calls.PackageList) -> bytes:
    filters = parse_filter(call, await fitting(parts.database, caller.tenant_id, call))
    await let_others_in()
    prices, current = caller.access.prices, parts.cache.catalogue
    if call.catalog_version and call.catalog_version == current.version_for(prices):
        return current.not_modified(prices, filters)
    return current.page(prices, filters)


@route(
    operations.REGION_LIST,
    summary="List regions with packages",
    description="Countries, regions and global bundles that packages on sale for you are made for.",
)
async def list_regions(parts: Parts, caller: Caller, call: calls.RegionList) -> bytes:
    await let_others_in()
    return parts.cache.catalogue.regions(caller.access.prices, call)
