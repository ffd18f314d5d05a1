"""`dealer-server topup`: top-ups that dealers request and operators review."""

from typing import TYPE_CHECKING, Any

import msgspec
from cyclopts import App

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_json, print_result, print_table

if TYPE_CHECKING:
    from dealer_server.store.wallets.topup import Topup

app = App(name="topup", help="Top-ups that dealers request.")


@app.command(name="list")
async def list_topups(
    *, tenant: int | None = None, status: str | None = "PENDING", as_json: AsJson = False, context: Context
) -> None:
    """List top-ups, newest first.

    Args:
        status: PENDING (default), APPROVED, REJECTED or CANCELLED.
    """
    from dealer_server.operations.topups.review import list_topups

    topups = [_fields(found) for found in await list_topups(context.database, tenant, status)]
    if as_json:
        for fields in topups:
            print_json(fields)
    elif topups:
        heads = list(dict.fromkeys(name for fields in topups for name in fields if name != "duplicate"))
        print_table(heads, ([str(fields.get(name, "")) for name in heads] for fields in topups))
    else:
        print("there is no such top-up")


@app.command(name="approve")
async def approve_topup(topup_no: str, *, as_json: AsJson = False, context: Context) -> None:
    """Credit the dealer's wallet; repeating it credits nothing more."""
    from dealer_server.operations.topups.review import approve_topup

    approved = await approve_topup(context.database, topup_no, context.author, context.clock)
    fields = _fields(approved)
    line = f"{topup_no} is approved: {fields['amount']} {approved.currency} to tenant {approved.tenant_id}"
    print_result(as_json, fields, line)


@app.command(name="reject")
async def reject_topup(topup_no: str, *, reason: str, as_json: AsJson = False, context: Context) -> None:
    """Reject a top-up.

    Args:
        reason: Shown to the dealer.
    """
    from dealer_server.operations.topups.review import reject_topup

    rejected = await reject_topup(context.database, topup_no, reason, context.author, context.clock)
    print_result(as_json, _fields(rejected), f"{topup_no} is rejected")


def _fields(reviewed: "Topup") -> dict[str, Any]:
    """A top-up as the dealer sees it, with the dealer."""
    from dealer_server.operations.topups.request import answer

    return {"tenantId": str(reviewed.tenant_id)} | msgspec.to_builtins(answer(reviewed, duplicate=False))
