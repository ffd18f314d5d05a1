"""The form of a dealer's brand, for the dealer itself and for operators."""

import base64
from typing import Any

from dealer_server.console.shared.request_context import Html, Redirect, RequestContext
from dealer_server.operations.tenants.brand import BrandChange, read_brand, set_brand
from dealer_server.rules.brand import brand as rules
from dealer_server.rules.brand import colour, logo

TEMPLATE = "brand.html"
FIELDS = ("name", "colour", "support_email", "support_phone", "support_url", "sales_url")


async def show(context: RequestContext, tenant_id: int, **fields: Any) -> Html:
    """`fields`: what the page says besides the brand."""
    brand = await read_brand(context.parts.database, tenant_id)
    return Html(
        template=TEMPLATE,
        action=context.url.partition("?")[0],
        brand=brand,
        values={name: getattr(brand, name) for name in FIELDS},
        neutral=colour.NEUTRAL,
        shades=colour.shades(brand.colour or colour.NEUTRAL),
        logo=_address(brand.logo),
        max_name=rules.MAX_NAME,
        max_kilobytes=logo.MAX_BYTES // 1024,
        max_side=logo.MAX_SIDE,
        **fields,
    )


async def save(context: RequestContext, tenant_id: int, back: str) -> Redirect:
    """Sets what was filled in. Raises OperatorError."""
    form = context.form
    texts = {name: form.get(name, "") for name in FIELDS}
    change = BrandChange(**texts, logo=context.files.get("logo") or None, no_logo="no_logo" in form)
    await set_brand(context.parts.database, tenant_id, change, context.author)
    return Redirect(back, "The brand is saved; every install page shows it from now on")


def _address(picture: logo.Logo | None) -> str:
    if picture is None:
        return ""
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.content).decode()}"
