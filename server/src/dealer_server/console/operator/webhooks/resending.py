"""Sending many webhooks again: what is chosen, how many they are, and the jobs that send them."""

from datetime import UTC, datetime
from typing import get_args

from dealer_server.console.find import choice
from dealer_server.console.operator.webhooks.log import WEBHOOKS
from dealer_server.console.shared import params
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import OPERATOR_SUPPORT, OPERATORS
from dealer_server.console.shared.request_context import Html, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.webhooks import resend
from dealer_server.operations.webhooks.resend import DeliverySelection, Resendable
from dealer_server.store.console import search
from dealer_server.store.webhooks.dialects import EVENT_TYPES

RESEND = f"{WEBHOOKS}/resend"
FIELDS = ("kind", "dealer", "from", "to", "state", "event")
JOBS = 10


@page(RESEND, OPERATORS, "operator/resending.html")
async def resending(context: RequestContext) -> Html:
    """What may be chosen, beginning with the dealer that the address names; and the latest jobs."""
    jobs = await resend.jobs(context.parts.database, JOBS)
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, context.query.get("dealer"))
        names = await search.names(connection, [job.tenant_id for job in jobs if job.tenant_id])
    return Html(dealer=dealer, jobs=jobs, names=names, states=get_args(Resendable), events=EVENT_TYPES)


@action(f"{WEBHOOKS}/count", OPERATOR_SUPPORT, "operator/resend.html")
async def count(context: RequestContext) -> Html:
    """How many would be sent again, before anything is."""
    selection = await _selection(context)
    counted = await resend.count(context.parts.database, selection)
    form = {name: context.form.get(name, "") for name in FIELDS}
    return Html(selection=selection, counted=counted, total=sum(part.total for part in counted), form=form)


@action(f"{WEBHOOKS}/begin", OPERATOR_SUPPORT)
async def begin(context: RequestContext) -> Redirect:
    selection = await _selection(context)
    counted = await resend.count(context.parts.database, selection)
    await resend.begin(context.parts.database, selection, counted, context.author, lambda: context.now)
    return Redirect(RESEND, "The deliveries are being resent")


@action(f"{WEBHOOKS}/jobs/{{job_id}}/stop", OPERATOR_SUPPORT)
async def stop(context: RequestContext) -> Redirect:
    job_id = params.path_number(context, "job_id")
    await resend.stop(context.parts.database, job_id, context.author, lambda: context.now)
    return Redirect(RESEND, f"Job {job_id} is stopped")


async def _selection(context: RequestContext) -> DeliverySelection:
    """Raises OperatorError."""
    form = context.form
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, form.get("dealer"))
    start, end = params.day(form, "from"), params.day(form, "to", after=True)
    if form.get("kind") == "SYNC" and start is None:
        raise OperatorError("Snapshots of orders are sent for a time range: choose the first day", "from")
    return DeliverySelection(
        "SYNC" if form.get("kind") == "SYNC" else "RESEND",
        dealer.required if dealer.text else None,
        start or datetime.fromtimestamp(0, UTC),
        end or context.now,
        (form.get("state") or "FAILED",),  # type: ignore[arg-type]
        form.get("event") or None,  # type: ignore[arg-type]
    )
