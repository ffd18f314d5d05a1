"""Price lists of a new `dealer-server dev`: what partners pay for large plans, and what those pay who buy little.

Made-up dealers bought none of the plans with a price of their own, so that their past orders cost what they would now.
"""

from collections.abc import Mapping
from datetime import datetime

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.dev import history
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.price_lists import change
from dealer_server.operations.price_lists.change import ListForm
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money

PARTNERS = ListForm("Partners", "PRICE", "0")
OTHERS = (ListForm("Small shops", "PRICE", "8"),)
DEALER = history.OTHERS[0]
"""Who has the list for partners."""
_PLACES = ("ASIA-13", "BALKANS-10", "EU-35", "JP", "TH", "US")
CHEAPER = tuple(f"{place}-{volume}-30D" for place in _PLACES for volume in ("20GB", "50GB"))
"""What partners pay less for, where there is one."""
_DISCOUNT = 10  # percent


async def put(database: Database, packages: Mapping[str, Package], at: datetime) -> None:
    """Makes those that are missing, as they would have been made then."""
    for form in (PARTNERS, *OTHERS):
        async with database.connection() as connection:
            known = await store.price_list.find(connection, form.name)
        if known is None:
            price_list_id = await change.create_list(database, form, "dev", lambda: at)
            if form is PARTNERS:
                await change.set_exceptions(database, price_list_id, _prices(packages), "dev", lambda: at)


def _prices(packages: Mapping[str, Package]) -> Mapping[str, str]:
    cents = {code: packages[code].price * (100 - _DISCOUNT) // 10_000 for code in CHEAPER if code in packages}
    return {code: money.text(price * 100, packages[code].currency) for code, price in cents.items()}


async def assign(connection: Connection, tenant_id: int, at: datetime) -> None:
    """Gives a dealer the list for partners."""
    price_list_id = await store.price_list.find(connection, PARTNERS.name)
    await store.price_list.assign(connection, tenant_id, price_list_id, at)
    given = {"priceList": PARTNERS.name}
    await record_change(connection, "dev", "tenant.price_list", tenant_id, {}, {"priceList": None}, given)
