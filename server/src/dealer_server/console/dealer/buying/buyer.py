"""For whom was an order bought? A form that sells a replacement names the order: no address holds the buyer's email."""

from collections.abc import Iterable
from typing import NamedTuple

from dealer_server.console.shared.request_context import RequestContext
from dealer_server.rules.notices.notice import is_mail_address
from dealer_server.rules.orders import identity
from dealer_server.store.console import orders
from dealer_server.store.notices import buyer_mails
from dealer_server.store.notices.buyer_mails import BuyerMail


class Buyer(NamedTuple):
    """As far as it is known. `language`: of its mails."""

    remark: str = ""
    mail: str = ""
    language: str = "en"


async def buyer_of(context: RequestContext, order_no: str) -> Buyer:
    """Of an order of this dealer; of nobody for any other."""
    order_id = identity.order_id(order_no)
    if order_id is None:
        return Buyer()
    async with context.parts.database.connection() as connection:
        remark = await orders.remark(connection, context.tenant_id, order_id)
        newest = (await buyer_mails.newest_of_orders(connection, context.tenant_id, [order_id])).get(order_id)
    mails = [newest] if newest else []
    return Buyer(remark or "", mail_of(remark, mails), newest.language if newest else Buyer().language)


def mail_of(remark: str | None, mails: Iterable[BuyerMail]) -> str:
    """The buyer's address, as far as it is known: that of a mail, or the remark where it is one."""
    known = (mail.mail for mail in mails if mail.mail)
    return next(known, remark if remark and is_mail_address(remark) else "")
