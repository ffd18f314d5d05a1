"""How does a supplier's price list become our catalogue? Compared first, then put on sale at a margin."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import price_changes
from dealer_server.operations.suppliers.describe import load_supplier, open_remote
from dealer_server.rules.catalogue import margin
from dealer_server.rules.catalogue.margin import Change, Margin, Offer
from dealer_server.rules.catalogue.package import Package
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.suppliers.rt.calls import NoAnswer, NotSent
from dealer_server.suppliers.rt.upstream import RtUpstream

_decoder = msgspec.json.Decoder(Package)


async def compare_catalogue(database: Database, keys: DataKeys, code: str, rule: Margin) -> list[Change]:
    """What our catalogue would become with the packages that a supplier lists, at a margin. Raises OperatorError."""
    async with database.connection() as connection:
        supplier = await load_supplier(connection, keys, code)
        documents = await store.supplier.packages_routed_first_to(connection, code)
    remote = open_remote(supplier)
    try:
        if not isinstance(remote, RtUpstream):
            raise OperatorError(f"{code} is a {supplier.kind}: it has no list of packages that can be read")
        listed = await remote.packages()
        recharges = await remote.recharges(margin.rechargeable(listed))
    except (NotSent, NoAnswer) as error:
        raise OperatorError(f"{code} did not give its list: {error}") from None
    finally:
        await remote.close()
    existing = [Offer(_decoder.decode(document), sku, cost) for document, sku, cost in documents]
    return margin.preview(listed, rule, existing, code, recharges)


async def import_catalogue(database: Database, code: str, changes: Sequence[Change], author: str, clock: Clock) -> None:
    """Puts compared packages on sale with the supplier first on their routes, all or none. Other suppliers stay on the
    routes behind it."""
    offers = [change.offer for change in changes if change.offer is not None]

    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)
        packages, now = [offer.package for offer in offers], clock()
        codes = [package.package_code for package in packages]
        listed, costs = await store.package.some(connection, codes), await store.price_list.costs(connection, codes)
        await store.package.put(connection, packages, now)
        before = await store.purchase.routes(connection, codes)
        for offer in offers:
            package = offer.package
            others = [hop for hop in before.get(package.package_code, []) if hop.supplier != code]
            currency = None if offer.cost is None else package.currency
            first = Hop(supplier=code, sku=offer.sku, cost=offer.cost, cost_currency=currency)
            await store.supplier.set_route(connection, package.package_code, [first, *others])
        await price_changes.tell_all(connection, listed, packages, now, costs)
        counts = Counter(change.kind for change in changes)
        await record_act(connection, author, "supplier.import", None, {"code": code, "changes": dict(counts)})

    if offers:
        await database.run(work)
