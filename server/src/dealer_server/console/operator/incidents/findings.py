"""What is wrong, as it is found in the database: on the whole platform, with one dealer, with one supplier."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.console.operator.incidents import impacts
from dealer_server.console.operator.incidents.links import links
from dealer_server.console.shared import incidents as shown
from dealer_server.console.shared import words
from dealer_server.console.shared.concern import Link
from dealer_server.console.shared.incidents import IncidentRow
from dealer_server.console.shared.permissions import permissions
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.incidents import dealer as dealer_rules
from dealer_server.rules.incidents import overview as rules
from dealer_server.rules.incidents import receiver as receiver_rules
from dealer_server.rules.incidents import supplier as supplier_rules
from dealer_server.rules.incidents.health import COUNTED_HOURS, HOUR, LOOKED_BACK, bad_since, is_degraded, is_failing
from dealer_server.rules.incidents.incident import Incident, rank, worst_first
from dealer_server.rules.incidents.refused import refused
from dealer_server.rules.incidents.supplier import NOTHING, Supplier
from dealer_server.rules.period import DAY, period
from dealer_server.rules.reports.period import day_of
from dealer_server.store.console import supplier_work
from dealer_server.store.console import user as console_user
from dealer_server.store.console.dealers import Dealer, topped_up, waiting_of
from dealer_server.store.console.incidents import buying, findings, receivers, waiting
from dealer_server.store.console.supplier_work import CallCounts, CallRow
from dealer_server.store.console.suppliers import SupplierRow
from dealer_server.store.webhooks.answers import Answered

Counts = Mapping[str, CallCounts]
"""Calls of suppliers, by code."""
RECEIVERS = 10
"""Of so many receivers the webhooks that were not heard are counted; the others are told of as a number."""
BALANCES, SUPPLIERS = 5, 20
"""Of so many the balances that last short are told, and the calls are counted."""
CALLS = 50
"""Latest calls of a supplier that are looked at."""


class Degraded(NamedTuple):
    """A supplier that is degraded or failing: why the latest call failed, and since when it has been so; None where it
    was called more often than is read."""

    cause: str
    since: datetime | None


async def incidents(
    connection: Connection, context: RequestContext, suppliers: Sequence[SupplierRow], counts: Counts
) -> list[IncidentRow]:
    """Of the whole platform, the worst first."""
    settings = context.parts.settings
    lines = await waiting.by_supplier(connection)
    failing = await receivers.failing(connection, RECEIVERS)
    degraded = await receivers.degraded(connection, _last_day(context.now), context.now, RECEIVERS)
    user = await console_user.one(connection, context.user.user_id)
    degraded_by_code = await degraded_of(connection, suppliers, counts, context.now)
    balances = (await buying.short_balances(connection, day_of(context.now)))[:BALANCES]
    topups = await topped_up(connection, [one.tenant_id for one in balances])
    found = rules.Findings(
        worker_seen_at=await findings.worker_seen_at(connection),
        suppliers=[(_supplier(row, counts, degraded_by_code), lines.get(row.code, NOTHING)) for row in suppliers],
        queues=await findings.queued(connection, failed=not settings.refund_failed),
        receivers=[*failing, *[one._replace(cause=words.answer(one.cause) if one.cause else "") for one in degraded]],
        more_receivers=await receivers.count_failing(connection) - RECEIVERS if len(failing) == RECEIVERS else 0,
        stock=await findings.low_stock(connection, settings.stock_low),
        stock_low=settings.stock_low,
        queue_hours=settings.queue_hours,
        mails=await findings.failing_mails(connection, context.now - DAY) if settings.mails == "sent" else None,
        one_factor=user is not None and not user.totp_on,
        balances=[one._replace(topped_up=one.tenant_id in topups) for one in balances],
    )
    return await _with_impact(connection, context, _shown(rules.incidents(found, context.now), context))


async def of_supplier(
    connection: Connection, context: RequestContext, row: SupplierRow, counts: Counts
) -> list[IncidentRow]:
    lines = await waiting.by_supplier(connection, row.code)
    degraded_by_code = await degraded_of(connection, [row], counts, context.now)
    found = supplier_rules.incident(_supplier(row, counts, degraded_by_code), lines.get(row.code, NOTHING), context.now)
    shown_here = await _with_impact(connection, context, _shown([] if found is None else [found], context))
    return [row._replace(links=[link for link in row.links if link.label != "View supplier"]) for row in shown_here]


async def of_suppliers(
    connection: Connection,
    context: RequestContext,
    suppliers: Sequence[SupplierRow],
    counts: Counts,
    degraded_by_code: Mapping[str, Degraded],
) -> list[IncidentRow]:
    """For their list."""
    lines = await waiting.by_supplier(connection)
    each = [(_supplier(row, counts, degraded_by_code), lines.get(row.code, NOTHING)) for row in suppliers]
    found = worst_first(supplier_rules.incidents(each, context.now))
    shown_here = await _with_impact(connection, context, _shown(found, context))
    return [row._replace(links=[link for link in row.links if link.label != "View suppliers"]) for row in shown_here]


async def of_receiver(
    connection: Connection, context: RequestContext, tenant_id: int, answered: Answered
) -> list[IncidentRow]:
    """Of one dealer's, for its page. `answered`: in the last 24 hours."""
    receiver = await receivers.of_dealer(connection, tenant_id, context.now, answered)
    found = receiver_rules.incident(receiver, context.now) if receiver else None
    return [row._replace(links=()) for row in _shown([] if found is None else [found], context)]


async def of_dealer(
    connection: Connection, context: RequestContext, row: Dealer, answered: Answered
) -> list[IncidentRow]:
    """With what an operator is to decide of it, as the overview has these queues. `answered`: by its endpoint, in the
    last 24 hours."""
    queues = [
        rules.Queued(one.queue, one.waiting, one.since, {row.currency: one.amount}, str(row.tenant_id))
        for one in await waiting_of(connection, row.tenant_id)
    ]
    decided = [rules.queue(one, context.parts.settings.queue_hours, context.now) for one in queues]
    means = await buying.means(connection, row.tenant_id)
    found = dealer_rules.Dealer(
        tenant_id=row.tenant_id,
        name=row.name,
        disabled=row.status == "DISABLED",
        frozen=row.frozen,
        currency=row.currency,
        available=row.available,
        threshold=row.low_balance_threshold,
        cheapest=means.cheapest,
        credentials=means.credentials,
        receiver=await receivers.of_dealer(connection, row.tenant_id, context.now, answered),
    )
    here = Link("View dealer", f"/console/dealers/{row.tenant_id}")
    told = [*dealer_rules.incidents(found, context.now), *[one for one in decided if one]]
    shown_here = _shown(sorted(told, key=lambda one: rank(one.level)), context)
    return [row._replace(links=[link for link in row.links if link != here]) for row in shown_here]


def _shown(found: list[Incident], context: RequestContext) -> list[IncidentRow]:
    may = permissions(context.user)
    return shown.rows(found, lambda incident: links(incident, may))


async def _with_impact(connection: Connection, context: RequestContext, rows: list[IncidentRow]) -> list[IncidentRow]:
    found = await impacts.find(connection, context, rows)
    return [impacts.with_impact(row, found, context) for row in rows]


async def call_counts(connection: Connection, suppliers: Sequence[SupplierRow], now: datetime) -> Counts:
    """Of the last 24 hours, which charts show, of the first SUPPLIERS of them."""
    codes = [row.code for row in suppliers[:SUPPLIERS]]
    return await supplier_work.call_counts_of(connection, codes, _last_day(now), now)


async def degraded_of(
    connection: Connection, suppliers: Sequence[SupplierRow], counts: Counts, now: datetime
) -> dict[str, Degraded]:
    """Of each that answers and of whose calls too many failed."""
    bad = [
        row.code
        for row in suppliers
        if row.up and (count := counts.get(row.code)) and is_degraded(count.total - count.failed, count.total)
    ]
    found = dict[str, Degraded]()
    for code in bad:
        latest = latest_failure(await supplier_work.latest_calls(connection, code, CALLS), now)
        called = await supplier_work.call_hours(connection, code, now - LOOKED_BACK - COUNTED_HOURS * HOUR, now)
        hours = {one.start: (one.good, one.good + one.bad) for one in called}
        none_good = is_failing(counts[code].total - counts[code].failed, counts[code].total)
        since = bad_since(hours, now, is_failing if none_good else is_degraded)
        read = sum(one.good + one.bad for one in called)
        found[code] = Degraded(cause(latest) if latest else "", since if read < supplier_work.COUNTED_CALLS else None)
    return found


def cause(failure: CallRow) -> str:
    """Why a call failed, in few words: out of stock."""
    return refused(failure.reason).words or failure.result.lower()


def latest_failure(calls: Sequence[CallRow], now: datetime) -> CallRow | None:
    """Of calls from the newest on, within the last 24 hours."""
    return next((one for one in calls if one.failed and one.sent_at >= _last_day(now)), None)


def _last_day(now: datetime) -> datetime:
    return period("24h", None, None, now).start


def _supplier(row: SupplierRow, all_counts: Counts, degraded_by_code: Mapping[str, Degraded]) -> Supplier:
    counts = all_counts.get(row.code)
    return Supplier(
        code=row.code,
        paused=row.status == "PAUSED",
        paused_reason=row.paused_reason or "",
        changed_at=row.updated_at,
        up=row.up,
        since=row.since,
        packages=row.packages,
        answered=counts.total - counts.failed if counts else 0,
        asked=counts.total if counts else 0,
        cause=degraded_by_code[row.code].cause if row.code in degraded_by_code else "",
        bad_since=degraded_by_code[row.code].since if row.code in degraded_by_code else None,
    )
