"""A dealer's inbox of notices: what is new, and what each one is about."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from itertools import groupby
from typing import NamedTuple

from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.rules import dates
from dealer_server.rules.notices.notice import AnyNoticeType, types_of
from dealer_server.rules.notices.texts import LABELS, Text, text_of
from dealer_server.rules.reports.period import day_of
from dealer_server.store.notices import listing, marks, recipients
from dealer_server.store.notices.listing import Outcome
from dealer_server.store.notices.outbox import Notice

NOTICES, ONE = "/console/notices", "/console/notices/{notice_id}"
KINDS: Mapping[str, tuple[str, Sequence[AnyNoticeType]]] = {
    "money": ("Money", ("LOW_BALANCE", "TOPUP_REVIEWED", "REFUND_REVIEWED", "PRICE_CHANGED")),
    "customers": ("Customers", ("PLANS_ENDING",)),
    "integration": ("Integration", ("RECEIVER_FAILING", "CREDENTIALS_CHANGED")),
}
UNREAD = "unread"
_SYMBOLS: Mapping[str, str] = {
    "LOW_BALANCE": "wallet",
    "TOPUP_REVIEWED": "wallet",
    "REFUND_REVIEWED": "receipt-refund",
    "PRICE_CHANGED": "tag",
    "PLANS_ENDING": "clock",
    "RECEIVER_FAILING": "webhook",
    "CREDENTIALS_CHANGED": "key",
}


class Row(NamedTuple):
    """`level`: how urgent it is, as of an incident; "past" of plans that have ended. `failed`: mails and POSTs that
    told nobody."""

    notice: Notice
    text: Text
    symbol: str
    level: str
    unread: bool
    failed: Sequence[Outcome]


async def _unread(context: RequestContext) -> int:
    """For the menu."""
    async with context.parts.database.connection() as connection:
        return await marks.unread(connection, context.tenant_id, types_of(context.user.full_role), context.user.user_id)


@page(NOTICES, DEALERS, "dealer/notices.html", MenuEntry("Notices", "bell", 152, waiting=_unread))
async def notices(context: RequestContext) -> Html:
    """The newest first. Those of plans that have ended stand in one line at the end, unless they are asked for."""
    user, before = context.user, params.number(context.query, "before")
    own, kind = types_of(user.full_role), params.one_of(context.query, "kind", (UNREAD, *KINDS)) or ""
    types = [name for name in KINDS[kind][1] if name in own] if kind in KINDS else own
    async with context.parts.database.connection() as connection:
        mark = await marks.of_user(connection, user.user_id)
        unread = await marks.unread(connection, context.tenant_id, own, user.user_id)
        size = marks.LOOKED_AT if kind == UNREAD else PAGE_SIZE
        found = await listing.newest(connection, context.tenant_id, types, before, size + 1)
        known = await listing.outcomes(connection, context.tenant_id, [one.notice_id for one in found])
        url = await recipients.url(connection, context.tenant_id)
        total = None if kind == UNREAD else await listing.count(connection, context.tenant_id, types)
    shown = [one for one in found[:size] if kind != UNREAD or mark.is_unread(one.notice_id)]
    failed = defaultdict[int, list[Outcome]](list)
    for outcome in known:
        if outcome.state == "FAILED":
            failed[outcome.notice_id].append(outcome)
    rows = [_row(one, mark.is_unread(one.notice_id), failed[one.notice_id], day_of(context.now)) for one in shown]
    following = found[size - 1].notice_id if len(found) > size and kind != UNREAD else None
    ended = [row for row in rows if row.level == "past" and kind != "customers"]
    current = [row for row in rows if row not in ended]
    return Html(
        days=[list(its) for _, its in groupby(current, lambda row: day_of(row.notice.created_at))],
        ended=ended,
        ended_title=_title(ended) if ended else "",
        newest=found[0].notice_id if found else 0,
        unread=unread,
        kind=kind,
        kinds=[(name, label) for name, (label, types) in KINDS.items() if set(types) & set(own)],
        url=url,
        mails=context.parts.settings.mails,
        pages=params.pager(
            context, NOTICES, following, shown=len(rows), word="notice", total=total, most=listing.COUNTED
        ),
    )


@page(ONE, DEALERS, "dealer/notice.html")
async def notice(context: RequestContext) -> Html:
    """What it says, what it is about, and what became of it. From now on this user has read it."""
    tenant_id, notice_id = context.tenant_id, params.path_number(context, "notice_id")
    async with context.parts.database.connection() as connection:
        found = await listing.one(connection, tenant_id, types_of(context.user.full_role), notice_id)
        outcomes = await listing.outcomes(connection, tenant_id, [notice_id])
        if found is None:
            raise NotFound
        await marks.open_one(connection, context.user.user_id, notice_id)
    plans = found.data["plans"] if found.notice_type == "PLANS_ENDING" else []
    return Html(
        notice=found,
        text=text_of(found.notice_type, found.data),
        label=next(label for name, (label, _) in LABELS.items() if name == found.notice_type),
        outcomes=outcomes,
        plans=[(one, datetime.fromisoformat(one["planUseEndTime"])) for one in plans],
        more=int(found.data["count"]) - len(plans) if plans else 0,
        mails=context.parts.settings.mails,
    )


@action(f"{NOTICES}/read", DEALERS)
async def read(context: RequestContext) -> Redirect:
    """All up to the newest that the page showed."""
    newest = params.number(context.form, "newest")
    if newest is not None:
        async with context.parts.database.connection() as connection:
            await marks.read_to(connection, context.user.user_id, newest)
    return Redirect(NOTICES)


def _row(one: Notice, unread: bool, failed: Sequence[Outcome], today: date) -> Row:
    text = text_of(one.notice_type, one.data)
    level = "fault" if text.urgent else "note"
    if one.notice_type == "PLANS_ENDING":
        day = date.fromisoformat(one.data["date"])
        level = "waiting" if day >= today else "past"
        if level == "past":
            ended = f"{many(int(one.data['count']), 'plan')} ended on {dates.day(day)}"
            text = text._replace(subject=ended)
    if not (unread or text.urgent) or level == "past":
        text = text._replace(sentence="")
    return Row(one, text, _SYMBOLS.get(one.notice_type, "bell"), level, unread, failed)


def _title(rows: Sequence[Row]) -> str:
    """Of notices of plans that have ended, the newest first."""
    plans = sum(int(row.notice.data["count"]) for row in rows)
    first, last = (date.fromisoformat(row.notice.data["date"]) for row in (rows[-1], rows[0]))
    begin = str(first.day) if (first.year, first.month) == (last.year, last.month) else dates.day(first)
    return f"{many(plans, 'plan')} ended, {begin} to {dates.day(last)}"
