"""A refund by its number: it stands on the page of its order."""

from dealer_server.console.find.orders import ORDERS
from dealer_server.console.shared.page import page
from dealer_server.console.shared.permissions import EVERYBODY
from dealer_server.console.shared.request_context import NotFound, Redirect, RequestContext
from dealer_server.rules.orders import identity
from dealer_server.store.console import queues

REFUND = "/console/refunds/{number}"


@page(REFUND, EVERYBODY, "")
async def show_refund(context: RequestContext) -> Redirect:
    number = context.path["number"]
    refund_id = identity.refund_id(number)
    async with context.parts.database.connection() as connection:
        owner = None if refund_id is None else await queues.order_of(connection, refund_id)
    if owner is None or context.user.tenant_id not in (None, owner.tenant_id):
        raise NotFound
    return Redirect(f"{ORDERS}/{identity.order_no(owner.order_id)}#{number}")
