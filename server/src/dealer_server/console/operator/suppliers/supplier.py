"""One supplier: how it is doing, what waits for it, its calls, and the packages that it makes."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.suppliers.fields import kind_title
from dealer_server.console.operator.suppliers.listing import SUPPLIER, SUPPLIERS
from dealer_server.console.operator.suppliers.spending import spending
from dealer_server.console.shared import params
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATOR_SUPPORT, OPERATORS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.orders.reroute import reroute
from dealer_server.operations.suppliers.check import advice, check_health
from dealer_server.operations.suppliers.configure import load_iccids, remove_supplier, set_supplier_status
from dealer_server.operations.suppliers.describe import show_suppliers
from dealer_server.operations.suppliers.resolve import list_parked
from dealer_server.rules import dates
from dealer_server.rules.bars import Bar, Bars, bars
from dealer_server.rules.incidents.health import supplier_word
from dealer_server.rules.incidents.refused import refused
from dealer_server.rules.money.money import fine_text
from dealer_server.rules.period import RECENT, Period, Range, period, starts
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import day_of
from dealer_server.store.console import supplier_work
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.supplier_work import CallRow
from dealer_server.store.console.suppliers import SupplierRow
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter, Row
from dealer_server.store.suppliers import outage
from dealer_server.store.suppliers.supplier import free_iccids
from dealer_server.suppliers.contract import Health

TEMPLATE = "operator/suppliers/supplier.html"
WAITING, RUNS = 25, 8
ROUTED = 8
"""Of so many packages the page tells, unless it is asked for all."""
SOLD = 1_000
"""Of so many packages the sales are looked up."""
FEW = 24
"""Fewer calls than this are told of without a chart."""
OUTAGE_DAYS, OUTAGES = 30, 50


class CallRun(NamedTuple):
    """The `calls` about one eSIM, or about `esims` of one order and package that went alike, of which the latest says
    what came of it. `seconds`: from the first to its answer. `more`: so many orders in a row failed in the same way,
    the first at `since`."""

    latest: CallRow
    calls: int
    seconds: float | None
    esims: int
    more: int
    since: datetime

    @property
    def told(self) -> str:
        """Why it failed, or what else the supplier said about it."""
        return refused(self.latest.reason).words or self.latest.reason or self.latest.message or ""


def _runs(calls: Sequence[CallRow]) -> list[CallRun]:
    """Of calls from the newest on."""
    units: dict[str, list[CallRow]] = {}
    for call in calls:
        units.setdefault(call.unit_key, []).append(call)
    found = list[CallRun]()
    for _, alike in groupby(units.values(), _alike):
        runs = list(alike)
        latest, calls = runs[0][0], [call for run in runs if run[0].order_id == runs[0][0].order_id for call in run]
        begun, ended = min(call.sent_at for call in calls), latest.answered_at
        found.append(
            CallRun(
                latest,
                len(calls),
                None if ended is None else max((ended - begun).total_seconds(), 0.0),
                len({call.unit_key for call in calls if call.package_code == latest.package_code}),
                len({run[0].order_id for run in runs}) - 1,
                runs[-1][0].sent_at,
            )
        )
    return found


def _alike(calls: Sequence[CallRow]) -> tuple[object, ...]:
    """What the calls about eSIMs that stand in one row have in common: failures of several orders, else one order and
    package."""
    latest = calls[0]
    thing = latest.failed or (latest.order_id, latest.package_code)
    return latest.kind, latest.result, latest.reason, latest.message, thing


@page(SUPPLIER, OPERATORS, TEMPLATE)
async def show_supplier(context: RequestContext) -> Html:
    return await _supplier(context)


@action(f"{SUPPLIER}/check", OPERATOR_SUPPORT, TEMPLATE)
async def check(context: RequestContext) -> Html:
    """Asks the supplier for its health now: nothing is bought."""
    parts = context.parts
    return await _supplier(context, await check_health(parts.database, parts.data_keys, context.path["code"]))


async def _supplier(context: RequestContext, health: Health | None = None) -> Html:
    code, parts, now = context.path["code"], context.parts, context.now
    chosen: Range | None = params.one_of(context.query, "range", tuple(RECENT))
    async with parts.database.connection() as connection:
        row = next((row for row in await console_suppliers.list_suppliers(connection) if row.code == code), None)
        if row is None:
            raise NotFound
        open_purchases = await console_suppliers.open_purchases(connection, code)
        free = await free_iccids(connection, code)
        calls = await supplier_work.latest_calls(connection, code, findings.CALLS)
        counts = await findings.call_counts(connection, [row], now)
        of, call_bars = await _calls(connection, row, chosen, now)
        outages = await outage.since(connection, code, now - timedelta(days=OUTAGE_DAYS), OUTAGES)
        waiting = await supplier_work.waiting_orders(connection, code, WAITING)
        spans = [one for one in await console_suppliers.cost_spans(connection) if one.supplier == code]
        served = await _served(connection, context, code)
        incidents = await findings.of_supplier(connection, context, row, counts)
        failing = findings.latest_failure(calls, now)
        dealers, _ = await report.names(connection, [call.tenant_id for call in calls], ())
        spent = (await spending(connection, [row], day_of(now)))[code]
    count = counts[code]
    totals = (await show_suppliers(parts.database, parts.data_keys, code))[0] if "totals" in context.query else None
    return Html(
        supplier=row,
        kind_title=kind_title,
        incidents=incidents,
        open_purchases=open_purchases,
        free=free,
        health=health,
        advice=advice(health) if health else "",
        balance_text=fine_text,
        totals=totals,
        parked=await list_parked(parts.database, code),
        **_latest(calls, failing),
        dealers=dealers,
        count=count,
        word=supplier_word(row.up, count.total - count.failed, count.total),
        **_chart(row, call_bars, of),
        outages=outages,
        outage_days=OUTAGE_DAYS,
        most_outages=OUTAGES,
        lasted=dates.lasted,
        spans=spans,
        spending=spent,
        waiting=waiting,
        **served,
        margin=price_list.margin,
    )


async def _calls(connection: Connection, row: SupplierRow, chosen: Range | None, now: datetime) -> tuple[Period, Bars]:
    """The calls of the range that was asked for; else of the shortest with enough for a chart, or of 24 hours."""
    names = (chosen,) if chosen else ("24h",) if row.up is False else tuple(RECENT)
    found = list[tuple[Period, Bars]]()
    for of in (period(name, None, None, now) for name in names):
        counted = await supplier_work.call_hours(connection, row.code, of.start, now)
        found.append((of, bars((Bar(one.start, one.good, one.bad) for one in counted), of)))
        if found[-1][1].total >= FEW:
            return found[-1]
    return found[0]


def _chart(row: SupplierRow, call_bars: Bars, of: Period) -> dict[str, Any]:
    return {
        "call_bars": call_bars,
        "calls_cut": call_bars.total >= supplier_work.COUNTED_CALLS,
        "few": call_bars.total < FEW,
        "chosen": of.name,
        "ranges": RECENT,
        "down": [one for one in starts(of) if row.up is False and row.since and one + of.bucket > row.since],
    }


def _latest(calls: Sequence[CallRow], failing: CallRow | None) -> dict[str, Any]:
    return {
        "calls": _runs(calls)[:RUNS],
        "failing": failing,
        "cause": findings.cause(failing) if failing else "",
    }


async def _served(connection: Connection, context: RequestContext, code: str) -> dict[str, Any]:
    """The packages that it makes, those of which it sold most in 30 days first; or, where the query asks for all, a
    page of them by name."""
    every = "packages" in context.query or "before" in context.query
    most = PAGE_SIZE if every else ROUTED
    wanted = Filter(recent.shown(day_of(context.now)), supplier=code)
    best = Counter[str]() if every else _sold(await report.grouped(connection, wanted, ("package",), SOLD))
    first = [package for package, _ in best.most_common(most)]
    rows = await supplier_work.served(connection, code, params.text(context.query, "before"), most + 1, first)
    codes = [row.package.package_code for row in rows]
    sold = _sold(await report.among(connection, wanted, ("package",), codes)) if every else best
    following = rows[most - 1].package.package_code if len(rows) > most else None
    shown = min(len(rows), most)
    return {
        "served": rows[:most],
        "sold": sold,
        "more_served": len(rows) > most and not every,
        "served_pages": params.pager(context, f"{SUPPLIERS}/{code}", following, shown=shown, word="package"),
    }


def _sold(rows: Sequence[Row]) -> Counter[str]:
    """eSIMs by package, of all currencies."""
    sold = Counter[str]()
    for one in rows:
        sold[one.keys["package"]] += one.sums.sold
    return sold


@action(f"{SUPPLIER}/reroute", OPERATOR_SUPPORT)
async def send_elsewhere(context: RequestContext) -> Redirect:
    """Sends what waits for the supplier to the next ones of the routes."""
    code, parts = context.path["code"], context.parts
    done = await reroute(parts.database, parts.data_keys, code, context.author, lambda: context.now)
    text = f"{many(done.esims, 'eSIM')} of {many(done.orders, 'order')} sent to {', '.join(done.suppliers)}"
    left = f"; {many(len(done.left), 'item')} left: {done.left[0]}" if done.left else ""
    return Redirect(f"{SUPPLIERS}/{code}", f"{text}{left}{'; more still wait' if done.more else ''}")


@action(f"{SUPPLIER}/status", OPERATOR_ADMINS)
async def set_status(context: RequestContext) -> Redirect:
    code, status = context.path["code"], "PAUSED" if context.form.get("status") == "PAUSED" else "ACTIVE"
    await set_supplier_status(context.parts.database, code, status, context.author)
    return Redirect(f"{SUPPLIERS}/{code}", f"{code} is {'paused' if status == 'PAUSED' else 'active'}")


@action(f"{SUPPLIER}/remove", OPERATOR_ADMINS)
async def remove(context: RequestContext) -> Redirect:
    """Raises ReauthenticationRequired."""
    code = context.path["code"]
    context.require_recent_authentication()
    await remove_supplier(context.parts.database, context.parts.data_keys, code, context.author)
    return Redirect(SUPPLIERS, f"{code} is removed")


@action(f"{SUPPLIER}/iccids", OPERATOR_ADMINS)
async def add_iccids(context: RequestContext) -> Redirect:
    """ICCIDs that an SM-DP+ has reserved for us, all or none."""
    code, sku = context.path["code"], params.text(context.form, "sku")
    if sku is None or len(sku) > 64:
        raise OperatorError("Profile type: a name of 1 to 64 characters is needed, as on the routes", "sku")
    lines = context.form.get("iccids", "").splitlines()
    added = await load_iccids(context.parts.database, code, sku, lines, context.author)
    return Redirect(f"{SUPPLIERS}/{code}", f"{many(added, 'new ICCID')} for {sku}")
