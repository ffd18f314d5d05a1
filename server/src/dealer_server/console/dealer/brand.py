"""What a dealer's install pages show of it: name, logo, colour, whom its customers ask."""

from dealer_server.console.shared import brand
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS
from dealer_server.console.shared.request_context import Html, Redirect, RequestContext
from dealer_server.rules.orders.snapshot import install_page_url
from dealer_server.store.orders import listing
from dealer_server.store.orders.listing import ProfileFilter, Window
from dealer_server.store.profiles import install

BRAND = "/console/brand"
_ANY = ProfileFilter(*[None] * len(ProfileFilter._fields))
_ALL_IDS = (0, 2**53)


@page(BRAND, DEALER_DEVELOPERS, brand.TEMPLATE, MenuEntry("Install page", "qrcode", 155))
async def show_brand(context: RequestContext) -> Html:
    return await brand.show(context, context.tenant_id, dealer=None, newest=await _newest(context))


@action(BRAND, DEALER_DEVELOPERS)
async def set_brand(context: RequestContext) -> Redirect:
    return await brand.save(context, context.tenant_id, BRAND)


async def _newest(context: RequestContext) -> str:
    """The install page of the newest eSIM; "" where there is none."""
    parts = context.parts
    async with parts.database.connection() as connection:
        found = await listing.profile_ids(connection, context.tenant_id, _ANY, _ALL_IDS, Window(1, 0, None))
        shown = await install.find(connection, context.tenant_id, found[0][1], parts.data_keys) if found else None
    return install_page_url(shown.profile, context.tenant_id, parts.links) if shown else ""
