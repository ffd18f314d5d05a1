"""The list of eSIMs, of all dealers or of one: its filters, its order, its pages, and its file."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from dealer_server.console.find import dates, files, tabs
from dealer_server.console.find.files import Columns
from dealer_server.console.shared import params, words
from dealer_server.console.shared.params import COUNTED, CREATED, NEWEST_FIRST, PAGE_SIZE, Order
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.recharges import offers
from dealer_server.rules.incidents import dealer as rules
from dealer_server.rules.incidents.dealer import Ending
from dealer_server.rules.install.stage import use_by
from dealer_server.rules.orders import identity
from dealer_server.rules.reports.period import day_of, start_of
from dealer_server.rules.search.query import FEWEST_DIGITS
from dealer_server.store.console import profiles as store
from dealer_server.store.console import queues
from dealer_server.store.console.pages import ListPage
from dealer_server.store.console.profiles import STATES, Listed, ProfileFilter, ProfileRow, State
from dealer_server.store.notices import buyer_mails
from dealer_server.store.tenants import tenant

PROFILES = "/console/profiles"
Counts = Mapping[Listed | None, int]
DAY = timedelta(days=1)
RECHARGEABLE_COUNTED = 1_000
"""Of more plans it is not counted how many can be recharged."""
More = Callable[[Connection, Sequence[ProfileRow]], Awaitable[dict[str, Any]]]
FILTERS = ("dealer", "state", "status", "iccid", "from", "to", "order", "ends")
GROUPS: Mapping[str, tuple[State, ...]] = {
    "UNUSED": ("PENDING", "NOT_INSTALLED", "INSTALLED"),
    "IN_USE": ("IN_USE", "NEARLY_USED", "SUSPENDED"),
    "OVER": ("USED_UP", "ENDED", "REVIEW", "REFUNDING", "REFUNDED", "CANCELLED"),
    "FAILED": ("FAILED",),
}
"""Tabs and the states that each lists; each state is in one of them. None asks for attention: orders that
failed and refunds in review have queues of their own, which the first page counts."""
_NAMES: Mapping[str, str] = {"UNUSED": "Unused", "OVER": "Ended"}
NOT_MAILED: Listed = "NOT_MAILED"
"""Those that are not installed, for a dealer who mails from here."""
NEARLY_USED: Listed = "NEARLY_USED"
FORMER = "PROBLEM"
"""A tab that saved views may still ask for; it listed the failed ones too."""
_GROUP_OF: Mapping[str, str] = {
    **{state: group for group, states in GROUPS.items() for state in states},
    NOT_MAILED: NOT_MAILED,
    FORMER: "FAILED",
}
ASKED: tuple[str, ...] = (*GROUPS, *STATES, NOT_MAILED, FORMER)
"""What may be asked for: a tab, or one state of it."""
ENDS = "ends"
"""A list of one dealer's plans in use, by their end."""
ENDS_SOON, SOON = "Ends soon", "soon"
"""The tab of those that end today or tomorrow, and what asks for it."""
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


class Chosen(NamedTuple):
    """The tab that is chosen, "" for all, the state within it, "" for any, and the states to choose from; none where
    the tabs are enough."""

    group: str
    state: str
    options: Sequence[tuple[str, str]]


class EndingPlans(NamedTuple):
    """How many plans end on a day, and what may be done."""

    plans: int
    sentence: str


def filters(query: Mapping[str, str], tenant_id: int | None) -> ProfileFilter:
    asked = _asked(query)
    first, end = identity.ids_between(params.day(query, "from"), params.day(query, "to", after=True))
    return ProfileFilter(
        tenant_id=tenant_id,
        states=GROUPS.get(asked) or tuple(state for state in (*STATES, NOT_MAILED) if state == asked),
        iccid=params.text(query, "iccid"),
        first=first,
        end=end,
    )


def _asked(query: Mapping[str, str]) -> str:
    """A group or a state. It is `state` on an operator's page and `status` on a dealer's."""
    asked = params.one_of(query, "state", ASKED) or params.one_of(query, "status", ASKED) or ""
    return _GROUP_OF[FORMER] if asked == FORMER else asked


def _chosen(asked: str, groups: Mapping[str, str], *, wrong: bool) -> Chosen:
    """`wrong`: what was asked for is not valid."""
    group = asked if asked in GROUPS else groups.get(asked, "")
    within = [state for state in STATES if state != group and (groups[state] == group or not group)]
    options = (
        [(group, "Any status"), *((state, _name(state)) for state in within)] if within and (group or wrong) else []
    )
    return Chosen(group, "" if asked == group else asked, options)


def _groups(tenant_id: int | None) -> Mapping[str, str]:
    """The tab of each state; of what is to be done a dealer's list has tabs of its own."""
    return _GROUP_OF if tenant_id is None else {**_GROUP_OF, NEARLY_USED: NEARLY_USED}


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
    faults = params.faults(context.query, state=ASKED, status=ASKED) | _iccid_fault(wanted.iccid)
    found = ListPage[ProfileRow]((), None)
    async with context.parts.database.connection() as connection:
        if not faults:
            found = await _read(connection, wanted, seen, order)
        held = [(row.tenant_id, row.profile_id) for row in found.rows if row.held]
        own, soon, mails = context.user.tenant_id, None, NOT_MAILED in wanted.states
        if own is not None:
            soon = min((await count_ending_soon(connection, own, context.now)).plans, COUNTED)
            mails = mails or await buyer_mails.has_any(connection, own)
        counts = {} if faults or wanted.iccid else await _counts(connection, wanted, mails=mails)
        in_review = await queues.reviewed_profiles(connection, held)
        fields |= await more(connection, found.rows) if more else {}
    return Html(
        profiles=found.rows,
        in_review=in_review,
        filters=wanted,
        mails=mails,
        use_by=_use_by(context, found.rows),
        faults=faults,
        filtered=bool(faults) or wanted != filters({}, context.user.tenant_id),
        tabs=await _tabs(context, name, counts, soon, mails=mails),
        dates=dates.of(context, PROFILES),
        chosen=_chosen(_asked(context.query), _groups(own), wrong=bool(faults)),
        pager=params.list_pager(
            context,
            PROFILES,
            found.next,
            len(found.rows),
            "eSIM",
            oldest_first=oldest_first,
            total=soon if wanted.ending else None if order.key == ENDS else _total(counts, wanted.states),
        ),
        order=order,
        **fields,
    )


async def _tabs(context: RequestContext, name: str, counts: Counts, soon: int | None, *, mails: bool) -> tabs.Tabs:
    """`name`: of the parameter that is the state. `soon`: how many end soon, None for operators. `mails`: with those to
    be mailed."""
    tasks: list[tuple[str, dict[str, str]]] = [(_name(NOT_MAILED), {name: NOT_MAILED})] if mails else []
    if soon is not None:
        tasks += (ENDS_SOON, {"ends": SOON}), (_name(NEARLY_USED), {name: NEARLY_USED})
    return await tabs.of(
        context,
        PROFILES,
        [*[(_name(group), {name: group}) for group in GROUPS], *tasks],
        _listed(counts, soon, mails=mails),
        COUNTED,
        parts=_groups(context.user.tenant_id),
        tasks=[task for task, _ in tasks],
    )


async def _read(connection: Connection, wanted: ProfileFilter, seen: int | None, order: Order) -> ListPage[ProfileRow]:
    if order.key == ENDS or wanted.ending:
        return await store.list_by_end(
            connection, wanted, seen, PAGE_SIZE, latest_first=order.key == ENDS and order.descending
        )
    return await store.list_profiles(connection, wanted, seen, PAGE_SIZE, oldest_first=not order.descending)


async def count_ending_soon(connection: Connection, tenant_id: int, now: datetime) -> Ending:
    """Of the dealer's plans, each day COUNTED at most."""
    today, after = ending_soon(now)
    days = (today, today + DAY), (today + DAY, after)
    return Ending(*[await store.count_ending(connection, tenant_id, day, COUNTED) for day in days])


async def ending_soon_of(connection: Connection, context: RequestContext) -> Ending:
    """Of the dealer's plans, with how many can be recharged where they are few."""
    ending = await count_ending_soon(connection, context.tenant_id, context.now)
    possible = await _rechargeable(connection, context, ending_soon(context.now), ending.plans)
    return ending._replace(rechargeable=possible)


async def ending_by_day(connection: Connection, context: RequestContext) -> dict[date, EndingPlans]:
    """Of the dealer's plans that end today and tomorrow."""
    today, soon = day_of(context.now), await count_ending_soon(connection, context.tenant_id, context.now)
    found = dict[date, EndingPlans]()
    for day, plans in ((today, soon.today), (today + DAY, soon.tomorrow)):
        possible = await _rechargeable(connection, context, (start_of(day), start_of(day) + DAY), plans)
        told = rules.before_the_end(plans, possible)
        found[day] = EndingPlans(plans, f"{told[:1].upper()}{told[1:]}.")
    return found


async def _rechargeable(
    connection: Connection, context: RequestContext, ending: tuple[datetime, datetime], plans: int
) -> int | None:
    """How many of so many plans that end in this time can be recharged; None where they are none or many."""
    if not 0 < plans <= RECHARGEABLE_COUNTED:
        return None
    prices = await tenant.load_prices(connection, context.tenant_id)
    found = await store.ending_by_package(connection, context.tenant_id, ending, plans)
    catalogue = context.parts.catalogue()
    return sum(count for made, count in found.items() if offers.priced(catalogue, *made, prices))


def _iccid_fault(typed: str | None) -> dict[str, str]:
    if typed is None or (typed.isascii() and typed.isdigit() and len(typed) >= FEWEST_DIGITS):
        return {}
    return {"iccid": f"“{typed[:40]}” is not an ICCID or its last {FEWEST_DIGITS} digits or more"}


def _total(counts: Counts, states: Sequence[Listed]) -> int | None:
    """How many are in one of these states, in any where there are none; None where that is not known."""
    wanted = states or (None,)
    return sum(counts[one] for one in wanted) if all(one in counts for one in wanted) else None


async def _counts(connection: Connection, wanted: ProfileFilter, *, mails: bool) -> Counts:
    """How many there are in each state, as far as it is known."""
    return await store.count(connection, wanted, (*STATES, NOT_MAILED) if mails else STATES, COUNTED)


def _use_by(context: RequestContext, rows: Sequence[ProfileRow]) -> dict[int, datetime]:
    """When those that are not in use yet expire unless they are used, by profileId."""
    packages = context.parts.catalogue()
    found = {row.profile_id: use_by(row, row.order_id, packages.package(row.package_code)) for row in rows}
    return {key: at for key, at in found.items() if at}


def _listed(counts: Counts, soon: int | None, *, mails: bool) -> dict[str, int]:
    """How many the tabs list, by their names, as far as it is known."""
    all_of: dict[str, Sequence[Listed]] = {"All": (), **{_name(group): states for group, states in GROUPS.items()}}
    all_of[_name(NEARLY_USED)] = (NEARLY_USED,)
    if mails:
        all_of[_name(NOT_MAILED)] = (NOT_MAILED,)
    found = {name: count for name, states in all_of.items() if (count := _total(counts, states)) is not None}
    return found if soon is None else {**found, ENDS_SOON: soon}


def _name(word: str) -> str:
    """Of a group or a state."""
    return words.IN_REVIEW if word == "REVIEW" else _NAMES.get(word) or words.text(word)


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
