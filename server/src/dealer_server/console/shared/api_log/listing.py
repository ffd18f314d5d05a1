"""Which calls did a dealer make lately? Those refused, a sample of the others, and how many there were by the hour.

dealer/api_log.py and operator/api_log.py declare the pages.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from dealer_server.console.shared import params
from dealer_server.console.shared.api_log import subjects
from dealer_server.console.shared.api_log.words import MEANINGS, SLOW_MS, Log, meaning, operation, place
from dealer_server.console.shared.params import PAGE_SIZE, Pager
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.rules.bars import Bar, bars
from dealer_server.rules.period import period
from dealer_server.rules.result_codes import STATUS
from dealer_server.store.console import api_log
from dealer_server.store.console.api_log import KEPT, CallFilter, CallRow, Outcome
from dealer_server.store.tenants import call_hour, credential, served_call

T = TypeVar("T")
NEWEST = 3
"""Calls refused lately, which stand before all others."""
OUTCOMES: tuple[Outcome, ...] = ("refused", "succeeded")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


async def show_log(context: RequestContext, log: Log, **shown: Any) -> Html:
    """`shown`: what else the template needs."""
    of, filters = period("24h", None, None, context.now), _filters(context)
    outcome = filters.outcome
    async with context.parts.database.connection() as connection:
        codes = await api_log.codes(connection, log.tenant_id)
        paths = await api_log.paths(connection, log.tenant_id, outcome)
        calls = await api_log.list_calls(connection, log.tenant_id, filters, _before(context), PAGE_SIZE)
        day = CallFilter(start=of.start, outcome="refused")
        asked = filters != CallFilter() or _before(context) is not None
        refused = () if asked else await api_log.list_calls(connection, log.tenant_id, day, None, NEWEST)
        shown_calls = [*calls, *refused]  # a call that came between the two stands in one of them
        named = ((one.path, subjects.named(one)) for one in shown_calls)
        about = await subjects.of_calls(connection, log.tenant_id, named, by_reference=True)
        kept = await api_log.kept(connection, log.tenant_id, of.start)
        found = await call_hour.since(connection, log.tenant_id, of.start)
        served = await served_call.served(connection, log.tenant_id)
        keys = await credential.of_tenant(connection, log.tenant_id)
    callers = {(one.address, one.app_key) for one in shown_calls}
    lines = _runs(zip(calls, about[: len(calls)], strict=True), apart=bool(filters.named))
    return Html(
        log=log,
        outcome=outcome or "",
        calls=lines,
        newest_refused=list(zip(refused, about[len(calls) :], strict=True))[:NEWEST],
        all_from=shown_calls[0] if len(callers) == 1 else None,
        status=STATUS,
        counts={"": kept.refused + kept.succeeded, "refused": kept.refused, "succeeded": kept.succeeded},
        kept=kept,
        most_refused=KEPT,
        most_served=served_call.KEPT,
        served=served,
        day=bars((Bar(one.hour, one.served, one.refused) for one in found), of),
        codes=[("", "Any reason"), *((word, f"{meaning(word)}, {many(count, 'call')}") for word, count in codes)],
        paths=[("", "Any operation"), *((path, _choice(path, count)) for path, count in paths)],
        meanings=MEANINGS,
        operation=operation,
        place=place,
        key_names={key.app_key: key.name for key in keys if key.name},
        slow=SLOW_MS,
        filters=filters,
        faults=params.faults(context.query),
        pages=_pager(context, log.path, calls),
        **shown,
    )


def _filters(context: RequestContext) -> CallFilter:
    query = context.query
    return CallFilter(
        params.text(query, "code"),
        params.text(query, "path"),
        params.day(query, "from"),
        params.day(query, "to", after=True),
        params.one_of(query, "result", OUTCOMES),
        params.text(query, "q"),
    )


def _pager(context: RequestContext, path: str, calls: Sequence[CallRow]) -> Pager:
    total = calls[0].total if calls else None
    return params.pager(context, path, _following(calls), shown=len(calls), word="call", total=total)


def _runs(calls: Iterable[tuple[CallRow, T]], *, apart: bool) -> list[tuple[CallRow, T, int]]:
    """Each with how many stand for it: the newest of several that read the same, one after the other."""
    found: list[tuple[CallRow, T, int]] = []
    for call, its in calls:
        newest, _, times = found[-1] if found else (None, None, 0)
        if newest and not apart and _reads(newest) and _read(newest) == _read(call):
            found[-1] = (newest, its, times + 1)
        else:
            found.append((call, its, 1))
    return found


def _reads(call: CallRow) -> bool:
    return not call.code and bool(call.subject) and call.path.endswith("/query")


def _read(call: CallRow) -> tuple[str, ...]:
    return call.path, call.code, call.subject_kind, call.subject, call.app_key, call.address


def _choice(path: str, count: int) -> str:
    """Place an order (/esim/order), 12 calls."""
    words = operation(path)
    return f"{words} ({place(path)}), {many(count, 'call')}" if words else f"{place(path)}, {many(count, 'call')}"


def _before(context: RequestContext) -> datetime | None:
    """The moment that a page continues before; pages name it in microseconds."""
    number = params.number(context.query, "before")
    try:
        return None if number is None else _EPOCH + number * _MICROSECOND
    except OverflowError:
        return None


def _following(calls: Sequence[CallRow]) -> int | None:
    """None on the last page."""
    return (calls[-1].at - _EPOCH) // _MICROSECOND if calls and calls[0].left > len(calls) else None
