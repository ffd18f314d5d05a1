"""A form that sets a price below the cost is not written yet: a page holds it as it was typed and sends it again, once
the price is confirmed."""

from collections.abc import Awaitable, Callable

from dealer_server.console.shared.request_context import Answer, Html, RequestContext
from dealer_server.operations.catalogue.below_cost import BelowCost, cost_text

CONFIRMED = "allow_below_cost"
LOSSES = 200


async def confirmed(
    context: RequestContext, action: str, back: str, write: Callable[[bool], Awaitable[Answer]]
) -> Answer:
    """`write` is told whether prices below the cost are confirmed. `action` takes the form again; `back`: the page
    that it was on."""
    try:
        return await write(CONFIRMED in context.form)
    except BelowCost as why:
        return Html(
            409,
            template="operator/catalogue/below_cost.html",
            action=action,
            back=back,
            form={name: text for name, text in context.form.items() if name != CONFIRMED},
            losses=why.losses[:LOSSES],
            count=len(why.losses),
            cost_text=cost_text,
        )
