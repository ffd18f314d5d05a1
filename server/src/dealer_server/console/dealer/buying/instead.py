"""What can be sold in place of a package that is out of stock?"""

from dealer_server.console.dealer.buying.catalogue import PackageView, view
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.operations.orders.check import check_order
from dealer_server.rules.catalogue import choosing
from dealer_server.store.tenants import tenant
from esim_dealer.wire import calls

CHECKED = 5


async def instead_of(context: RequestContext, package_code: str, quantity: int) -> PackageView | None:
    """The package nearest to it of which so many are available; None where none of the nearest is."""
    parts, catalogue = context.parts, context.parts.catalogue()
    package = catalogue.package(package_code)
    if package is None:
        return None
    async with parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
    nearest = choosing.nearest(catalogue.on_sale(prices), package)
    able = [one for one in nearest if one.package.max_quantity >= quantity][:CHECKED]
    if not able:
        return None
    lines = [{"packageCode": one.package.package_code, "quantity": quantity} for one in able]
    check = await check_order(parts.database, catalogue, prices, context.tenant_id, call(calls.CheckOrder, items=lines))
    return next(
        (view(one) for one, line in zip(able, check.items, strict=True) if line.availability == "AVAILABLE"), None
    )
