"""The list of eSIMs, of all dealers or of one: its filters, its order, its pages, and its file."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from dealer_server.console.find import dates, files, tabs
from dealer_server.console.find.files import Columns
from dealer_server.console.shared import params, words
from dealer_server.console.shared.params import COUNTED, CREATED, NEWEST_FIRST, PAGE_SIZE, Order
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity
from dealer_server.rules.reports.period import day_of, start_of
from dealer_server.rules.search.query import FEWEST_DIGITS
from dealer_server.store.console import profiles as store
from dealer_server.store.console import queues
from dealer_server.store.console.pages import ListPage
from dealer_server.store.console.profiles import STATES, Listed, ProfileFilter, ProfileRow, State
from dealer_server.store.notices import buyer_mails

PROFILES = "/console/profiles"
DAY = timedelta(days=1)
More = Callable[[Connection, Sequence[ProfileRow]], Awaitable[dict[str, Any]]]
FILTERS = ("dealer", "state", "status", "iccid", "from", "to", "order", "ends")
PRESETS: tuple[State, ...] = ("NOT_INSTALLED", "INSTALLED", "IN_USE", "NEARLY_USED", "USED_UP", "ENDED")
"""States that have a tab of their own."""
SELDOM: tuple[State, ...] = ("PENDING", "SUSPENDED", "REVIEW", "REFUNDING", "FAILED")
"""States that have one while they list any; the others have one while they are asked for."""
URGENT: tuple[State, ...] = ("FAILED", "REVIEW")
"""Of these, those whose tabs stand first."""
ENDS = "ends"
"""A list of one dealer's plans in use, by their end."""
ENDS_SOON, SOON = "Ends soon", "soon"
"""The tab of those that end today or tomorrow, and what asks for it."""
NOT_MAILED: Listed = "NOT_MAILED"
"""Those that wait to be mailed, of a dealer who mails from here: a link beside those that are not installed."""
ACCEPTED: tuple[Listed, ...] = (*STATES, NOT_MAILED)
COLUMNS: Mapping[str, Callable[[ProfileRow], str]] = {
    "profileId": lambda row: str(row.profile_id),
    "ICCID": lambda row: row.iccid or "",
    "orderNo": lambda row: identity.order_no(row.order_id),
    "createTime": lambda row: f"{identity.created_at(row.order_id):%Y-%m-%dT%H:%M:%SZ}",
    "packageCode": lambda row: row.package_code,
    "lifecycleStatus": lambda row: row.lifecycle_status,
    "planUseStatus": lambda row: row.plan_use_status,
    "dataTotalBytes": lambda row: "" if row.data_total_bytes is None else str(row.data_total_bytes),
    "dataUsageBytes": lambda row: str(row.data_usage_bytes),
    "refunded": lambda row: "REFUNDED" if row.refunded else "FAILED" if row.failed else "",
}


def filters(query: Mapping[str, str], tenant_id: int | None) -> ProfileFilter:
    """The state is `state` on an operator's page and `status` on a dealer's."""
    first, end = identity.ids_between(params.day(query, "from"), params.day(query, "to", after=True))
    return ProfileFilter(
        tenant_id=tenant_id,
        state=params.one_of(query, "state", STATES) or params.one_of(query, "status", ACCEPTED),
        iccid=params.text(query, "iccid"),
        first=first,
        end=end,
    )


def ending_soon(now: datetime) -> tuple[datetime, datetime]:
    """Today and tomorrow."""
    today = start_of(day_of(now))
    return today, today + 2 * DAY


async def page(
    context: RequestContext, wanted: ProfileFilter, name: str, more: More | None = None, **fields: Any
) -> Html:
    """A page of the list; its template sees `fields` too, and what `more` reads of its rows. `name`: of the parameter
    that is the state."""
    sorts = (*CREATED, ENDS) if context.user.tenant_id is not None else CREATED
    order = params.order(context, PROFILES, sorts, ENDS if wanted.ending else NEWEST_FIRST)
    oldest_first, seen = not order.descending, params.number(context.query, "before")
    faults = params.faults(context.query, state=STATES, status=ACCEPTED) | _iccid_fault(wanted.iccid)
    found = ListPage[ProfileRow]((), None)
    async with context.parts.database.connection() as connection:
        if not faults:
            found = await _read(connection, wanted, seen, order)
        held = [(row.tenant_id, row.profile_id) for row in found.rows if row.held]
        own, soon, mails = context.user.tenant_id, None, wanted.state == NOT_MAILED
        if own is not None:
            soon = min(sum(await count_ending_soon(connection, own, context.now)), COUNTED)
            mails = mails or await buyer_mails.has_any(connection, own)
        states: Sequence[Listed] = (*PRESETS, *SELDOM, *filter(None, (wanted.state,)))
        wait = (NOT_MAILED,) if mails else ()
        counts = {} if faults or wanted.iccid else await store.count(connection, wanted, (*states, *wait), COUNTED)
        in_review = await queues.reviewed_profiles(connection, held)
        fields |= await more(connection, found.rows) if more else {}
    presets = _presets(wanted, name, counts, ends=soon is not None)
    listed = {_tab(state): count for state, count in counts.items()} | ({ENDS_SOON: soon} if soon is not None else {})
    return Html(
        profiles=found.rows,
        in_review=in_review,
        filters=wanted,
        mails=mails,
        unmailed=counts.get(NOT_MAILED, 0),
        faults=faults,
        filtered=bool(faults) or wanted != filters({}, context.user.tenant_id),
        tabs=await tabs.of(context, PROFILES, presets, listed, COUNTED),
        dates=dates.of(context, PROFILES),
        states=STATES,
        pager=params.list_pager(
            context,
            PROFILES,
            found.next,
            len(found.rows),
            "eSIM",
            oldest_first=oldest_first,
            total=soon if wanted.ending else None if order.key == ENDS else counts.get(wanted.state),
        ),
        order=order,
        **fields,
    )


def _presets(
    wanted: ProfileFilter, name: str, counts: Mapping[Listed | None, int], *, ends: bool
) -> list[tuple[str, dict[str, str]]]:
    """Tabs, and what asks for each. `ends`: with that of plans that end soon."""
    seldom: list[State] = [
        state for state in STATES if wanted.state == state or (state in SELDOM and counts.get(state))
    ]
    urgent: list[State] = [state for state in URGENT if state in seldom]
    presets = [(_tab(state), {name: str(state)}) for state in dict.fromkeys((*urgent, *PRESETS, *seldom))]
    if ends:
        presets.insert(len(urgent) + PRESETS.index("IN_USE") + 1, (ENDS_SOON, {"ends": SOON}))
    if wanted.state == NOT_MAILED:
        presets.insert(len(urgent) + PRESETS.index("NOT_INSTALLED") + 1, (_tab(NOT_MAILED), {name: str(NOT_MAILED)}))
    return presets


async def _read(connection: Connection, wanted: ProfileFilter, seen: int | None, order: Order) -> ListPage[ProfileRow]:
    if order.key == ENDS or wanted.ending:
        return await store.list_by_end(
            connection, wanted, seen, PAGE_SIZE, latest_first=order.key == ENDS and order.descending
        )
    return await store.list_profiles(connection, wanted, seen, PAGE_SIZE, oldest_first=not order.descending)


async def count_ending_soon(connection: Connection, tenant_id: int, now: datetime) -> tuple[int, int]:
    """How many of the dealer's end today and how many tomorrow, each COUNTED at most."""
    today, after = ending_soon(now)
    days = (today, today + DAY), (today + DAY, after)
    first, second = [await store.count_ending(connection, tenant_id, day, COUNTED) for day in days]
    return first, second


def _iccid_fault(typed: str | None) -> dict[str, str]:
    if typed is None or (typed.isascii() and typed.isdigit() and len(typed) >= FEWEST_DIGITS):
        return {}
    return {"iccid": f"“{typed[:40]}” is not an ICCID or its last {FEWEST_DIGITS} digits or more"}


def _tab(state: Listed | None) -> str:
    return "All" if state is None else words.IN_REVIEW if state == "REVIEW" else words.text(state)


async def export(context: RequestContext, wanted: ProfileFilter, columns: Columns[ProfileRow] = COLUMNS) -> Download:
    """All eSIMs of the list without their codes, the newest first; who takes the file is in the audit log."""
    await params.record_export(context, "profiles.export", wanted.tenant_id, FILTERS)
    return files.download(
        context,
        "profiles",
        columns,
        lambda connection, seen, size: (store.list_by_end if wanted.ending else store.list_profiles)(
            connection, wanted, seen, size
        ),
    )
