"""The brand of a dealer, as operators set it for the dealer."""

from dealer_server.console.operator import dealers
from dealer_server.console.operator.dealers import DEALER, DEALERS
from dealer_server.console.shared import brand
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS
from dealer_server.console.shared.request_context import Html, Redirect, RequestContext

BRAND = f"{DEALER}/brand"


@page(BRAND, OPERATOR_ADMINS, brand.TEMPLATE)
async def show_brand(context: RequestContext) -> Html:
    dealer = await dealers.load(context)
    return await brand.show(context, dealer.tenant_id, dealer=dealer, newest="")


@action(BRAND, OPERATOR_ADMINS)
async def set_brand(context: RequestContext) -> Redirect:
    dealer = await dealers.load(context)
    return await brand.save(context, dealer.tenant_id, f"{DEALERS}/{dealer.tenant_id}/brand")
