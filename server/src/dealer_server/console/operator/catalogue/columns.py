"""What stands in each column of a catalogue file? In short; docs/guides/catalog-import.md has all of it."""

import csv
import io
from collections.abc import Mapping
from typing import NamedTuple

from dealer_server.rules.catalogue import importing


class About(NamedTuple):
    """An example of a cell, and what it says."""

    example: str
    meaning: str


ABOUT: Mapping[str, About] = {
    "packageCode": About("ACME-FR-3GB", "What dealers order by. It never changes."),
    "packageName": About("France 3 GB 30 days", "Its name for people."),
    "locationCode": About("FR", "A country, a bundle such as EU-35, or a code of your own."),
    "price": About("2.40", "The default dealer price, of one day for daily packages."),
    "currency": About("USD", "ISO 4217. It never changes."),
    "dataType": About("TOTAL", "TOTAL, DAILY_REDUCED, DAILY_CUTOFF or DAILY_UNLIMITED."),
    "dataBytes": About("3GB", "How much data, of one day for daily packages. Empty for unlimited data."),
    "duration": About("30", "Days; 1 for daily packages."),
    "slug": About("acme-fr-3gb", "Part of a web address. Empty: made from the code."),
    "description": About("5G where there is any", "Up to 2,000 characters."),
    "type": About("BASE", "BASE, or TOPUP for what recharges eSIMs."),
    "status": About("ON_SALE", "ON_SALE or OFF_SALE."),
    "locationType": About("COUNTRY", "COUNTRY, REGION or GLOBAL. Empty: by the code."),
    "locationName": About("France", "Required for a code of your own."),
    "continent": About("Europe", "A dash for none."),
    "locations": About("FR;ES", "Countries. Required for a code of your own."),
    "retailPrice": About("3.99", "Recommended to dealers. Empty: the price."),
    "fupSpeed": About("384 Kbps", "Speed once the data is used."),
    "durationUnit": About("DAY", "DAY."),
    "minPeriodNum": About("1", "Fewest days of a daily package in an order."),
    "maxPeriodNum": About("30", "Most days of it."),
    "unusedValidDays": About("180", "Days within which it is to be used."),
    "activationType": About("FIRST_NETWORK", "When the plan starts: FIRST_NETWORK or FIRST_INSTALL."),
    "speed": About("4G/5G", "Empty: as named in networks."),
    "ipExport": About("FR", "Where the traffic reaches the internet."),
    "topUpSupport": About("true", "Whether its eSIMs can be recharged: true or false."),
    "topUpMode": About("ADD", "Of a TOPUP package: ADD to the plan in use, or QUEUE after it."),
    "maxQuantity": About("100", "Most eSIMs in an order line."),
    "networks": About("FR:Orange/5G|SFR/4G", "Networks by country, each with its speed."),
    "apn": About("internet", "Shown on the install page."),
    "supportedFields": About("esimStatus;smdpStatus", "Fields that the supplier reports. A dash for none."),
    "supplier": About("stock", "Who makes the eSIMs."),
}
NEEDED = [column.name for column in importing.COLUMNS if column.required or column.name == "dataBytes"]
"""What is enough for a new package, also for one whose data is limited."""
OPTIONAL = [name for name in importing.NAMES if name not in NEEDED]
assert set(ABOUT) == set(importing.NAMES), "every column is told of"


def template() -> str:
    """A file to begin with: the columns of a new package, and a line that shows each."""
    file = io.StringIO()
    csv.writer(file).writerows([NEEDED, [ABOUT[name].example for name in NEEDED]])
    return file.getvalue()
