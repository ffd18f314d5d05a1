"""What does a dealer ask for who recharges an eSIM? (specification 4.14)"""

import msgspec

from dealer_server.audit_context import Actor
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.orders.order import OrderRequest
from dealer_server.rules.orders.pricing import PriceList
from dealer_server.rules.recharges import recharge
from dealer_server.rules.recharges.recharge import Wanted
from esim_dealer.wire import calls


class RechargeRequest(msgspec.Struct, frozen=True):
    """A recharge that a dealer asks for. `refused`: a refusal of the price, which comes after those of the eSIM.
    `act`: the person who asks at the console, for the audit log."""

    order: OrderRequest
    wanted: Wanted
    refused: refusal.Refusal | None
    act: Actor | None = None

    @property
    def tenant_id(self) -> int:
        return self.order.tenant_id


def recharge_request(
    tenant_id: int,
    call: calls.RechargeProfile,
    catalogue: Catalogue,
    prices: PriceList,
    act: Actor | None = None,
) -> RechargeRequest:
    """The call at this dealer's prices. Raises 000105, 000106, 000108, 000111."""
    profile_id, iccid = profile_key(call.profile_id, call.iccid)
    priced = catalogue.price_recharge(call, prices)
    wanted = Wanted(
        profile_id=profile_id,
        iccid=iccid,
        package=priced.package,
        period_num=call.period_num,
        base=catalogue.package,
        refused=priced.refused,
    )
    placed = OrderRequest(
        tenant_id=tenant_id,
        transaction_id=call.transaction_id,
        digest=recharge.digest(priced, profile_id or iccid),
        currency=prices.currency,
        amount=priced.amount,
        lines=(priced.line,),
        remark=call.remark,
    )
    return RechargeRequest(placed, wanted, priced.refused_price, act)
