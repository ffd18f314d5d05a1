"""The search box. A text that names one thing leads straight to its page; the palette shows the same hits."""

from dealer_server.console.find import hits
from dealer_server.console.find.hits import SEARCH, Found, Kind
from dealer_server.console.shared import params
from dealer_server.console.shared.page import page
from dealer_server.console.shared.permissions import EVERYBODY
from dealer_server.console.shared.request_context import Answer, Html, Redirect, RequestContext
from dealer_server.rules.orders import identity
from dealer_server.rules.search.query import MAX_LENGTH


@page(SEARCH, EVERYBODY, "find/search.html", listing=True)
async def search(context: RequestContext) -> Answer:
    """`q`: the text. `kind`: only orders or eSIMs, more of them. `before`: orders before this orderId alone, by a part
    of their texts."""
    text = (params.text(context.query, "q") or "")[:MAX_LENGTH]
    before = params.number(context.query, "before")
    kinds: tuple[Kind, ...] = ("orders", "esims")
    kind: Kind | None = params.one_of(context.query, "kind", kinds)
    if not text:
        return _shown("", Found((), None))
    if (queue := _queue(context, text)) is not None and not context.partial:
        return Redirect(queue)
    found = await hits.hits(context, text, before, kind)
    if len(found.targets) == 1 and kind is None and not context.partial and before is None and not found.further:
        return Redirect(found.targets.pop())
    return _shown(text, found)


def _shown(text: str, found: Found) -> Html:
    further = None if found.further is None else params.address(SEARCH, {"q": text, "before": found.further})
    back_to = None if found.further is None else identity.created_at(found.further)
    return Html(text=text, groups=found.groups, further=further, back_to=back_to)


def _queue(context: RequestContext, text: str) -> str | None:
    """The page of a refundNo or topupNo; of a dealer the list that holds a topupNo and begins with it."""
    if identity.refund_id(text) is not None:
        return f"/console/refunds/{text}"
    if (topup_id := identity.topup_id(text)) is not None:
        if context.user.tenant_id is None:
            return f"/console/topups/{text}"
        return params.address("/console/wallet/topups", {"before": topup_id + 1})
    return None
