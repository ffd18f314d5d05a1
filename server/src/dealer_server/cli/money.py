"""`dealer-server topup` and `dealer-server refund`: what waits for an operator's word."""

import sys
from typing import TYPE_CHECKING, Any

import msgspec
from cyclopts import App

from dealer_server import settings
from dealer_server.cli import AsJson, author, opened_database, run

if TYPE_CHECKING:
    from dealer_server.store.refunds.refund import Refund
    from dealer_server.store.wallets.topup import Topup

topup_app = App(name="topup", help="Top-ups that dealers ask for.")
refund_app = App(name="refund", help="Refunds; some wait for a review.")


@topup_app.command(name="list")
def topup_list(*, tenant: int | None = None, status: str | None = "PENDING", as_json: AsJson = False) -> None:
    """Show top-ups, newest first.

    Args:
        status: PENDING (default), APPROVED, REJECTED or CANCELLED.
    """

    async def show() -> None:
        from dealer_server.operations.wallets import topup

        async with opened_database(settings.read()) as database:
            found = await topup.listed(database, tenant, status)
        _show(as_json, [_topup(one) for one in found], "no top-up is there")

    run(show())


@topup_app.command(name="approve")
def topup_approve(topup_no: str, *, as_json: AsJson = False) -> None:
    """Credit the dealer's wallet, once."""

    async def approve() -> None:
        from dealer_server.operations.wallets import topup

        async with opened_database(settings.read()) as database:
            done = await topup.approve(database, topup_no, author(), database.clock.now)
        fields = _topup(done)
        _say(as_json, fields, f"{topup_no} is approved: {fields['amount']} {done.currency} to tenant {done.tenant_id}")

    run(approve())


@topup_app.command(name="reject")
def topup_reject(topup_no: str, *, reason: str, as_json: AsJson = False) -> None:
    """Refuse a top-up.

    Args:
        reason: The dealer reads it.
    """

    async def reject() -> None:
        from dealer_server.operations.wallets import topup

        async with opened_database(settings.read()) as database:
            done = await topup.reject(database, topup_no, reason, author(), database.clock.now)
        _say(as_json, _topup(done), f"{topup_no} is rejected")

    run(reject())


@refund_app.command(name="list")
def refund_list(*, tenant: int | None = None, status: str | None = "REFUNDING", as_json: AsJson = False) -> None:
    """Show refunds, newest first.

    Args:
        status: REFUNDING (default), REFUNDED or REJECTED.
    """

    async def show() -> None:
        from dealer_server.operations.refunds import refund_review as review

        async with opened_database(settings.read()) as database:
            found = await review.listed(database, tenant, status)
        _show(as_json, [_refund(one) for one in found], "no refund is there")

    run(show())


@refund_app.command(name="approve")
def refund_approve(refund_no: str, *, as_json: AsJson = False) -> None:
    """Give back what waits for a review; the worker credits it."""

    async def approve() -> None:
        from dealer_server.operations.refunds import refund_review as review

        async with opened_database(settings.read()) as database:
            done = await review.approve(database, refund_no, author(), database.clock.now)
        _say(as_json, _refund(done), f"{refund_no} is approved")

    run(approve())


@refund_app.command(name="reject")
def refund_reject(refund_no: str, *, reason: str, as_json: AsJson = False) -> None:
    """Give nothing back of what waits for a review."""

    async def reject() -> None:
        from dealer_server.operations.refunds import refund_review as review

        async with opened_database(settings.read()) as database:
            done = await review.reject(database, refund_no, reason, author(), database.clock.now)
        _say(as_json, _refund(done), f"{refund_no} is rejected")

    run(reject())


def _topup(one: "Topup") -> dict[str, Any]:
    from dealer_server.operations.wallets import topup

    return {"tenantId": one.tenant_id} | msgspec.to_builtins(topup.answer(one, duplicate=False))


def _refund(row: "Refund") -> dict[str, Any]:
    from dealer_server.rules.orders import identity

    return {
        "refundNo": identity.refund_no(row.refund_id),
        "tenantId": row.tenant_id,
        "orderNo": identity.order_no(row.order_id),
        "status": row.status,
        "profiles": len(row.lines),
        "waitingForReview": sum(line.way == "REVIEW" and line.status == "PENDING" for line in row.lines),
        "createTime": f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}",
    }


def _show(as_json: bool, rows: list[dict[str, Any]], nothing: str) -> None:
    if as_json:
        for row in rows:
            print(msgspec.json.encode(row).decode())
        return
    if not rows:
        print(nothing)
        return
    from rich.console import Console
    from rich.table import Table

    heads = list(dict.fromkeys(name for row in rows for name in row if name != "duplicate"))
    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in heads))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _say(as_json: bool, fields: dict[str, Any], line: str) -> None:
    print(msgspec.json.encode(fields).decode() if as_json else line)
