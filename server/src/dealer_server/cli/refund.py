"""`dealer-server refund`: refunds, and those that an operator reviews."""

from typing import TYPE_CHECKING, Any

from cyclopts import App

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_json, print_result, print_table

if TYPE_CHECKING:
    from dealer_server.store.refunds.refund import Refund

app = App(name="refund", help="Refunds; some wait for a review.")


@app.command(name="list")
async def list_refunds(
    *, tenant: int | None = None, status: str | None = "REFUNDING", as_json: AsJson = False, context: Context
) -> None:
    """List refunds, newest first.

    Args:
        status: REFUNDING (default), REFUNDED or REJECTED.
    """
    from dealer_server.operations.refunds.review import list_refunds

    refunds = [_fields(refund) for refund in await list_refunds(context.database, tenant, status)]
    if as_json:
        for fields in refunds:
            print_json(fields)
    elif refunds:
        print_table(list(refunds[0]), (list(map(str, fields.values())) for fields in refunds))
    else:
        print("there is no such refund")


@app.command(name="approve")
async def approve_refund(refund_no: str, *, as_json: AsJson = False, context: Context) -> None:
    """Approve the profiles of a refund that wait for a review; the worker credits them."""
    from dealer_server.operations.refunds.review import approve_refund

    approved = await approve_refund(context.database, refund_no, context.author, context.clock)
    print_result(as_json, _fields(approved), f"{refund_no} is approved")


@app.command(name="reject")
async def reject_refund(refund_no: str, *, reason: str, as_json: AsJson = False, context: Context) -> None:
    """Reject the profiles of a refund that wait for a review."""
    from dealer_server.operations.refunds.review import reject_refund

    rejected = await reject_refund(context.database, refund_no, reason, context.author, context.clock)
    print_result(as_json, _fields(rejected), f"{refund_no} is rejected")


def _fields(refund: "Refund") -> dict[str, Any]:
    from dealer_server.rules.orders import identity

    return {
        "refundNo": identity.refund_no(refund.refund_id),
        "tenantId": str(refund.tenant_id),
        "orderNo": identity.order_no(refund.order_id),
        "status": refund.status,
        "profiles": len(refund.lines),
        "waitingForReview": sum(line.way == "REVIEW" and line.status == "PENDING" for line in refund.lines),
        "createTime": f"{refund.created_at:%Y-%m-%dT%H:%M:%SZ}",
    }
