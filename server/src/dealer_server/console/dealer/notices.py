"""A dealer's inbox of notices: what is new."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from dealer_server.console.auth.notices import GROUPS, NOTICES
from dealer_server.console.find import profiles
from dealer_server.console.find.profiles import EndingPlans
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.rules import dates
from dealer_server.rules.money import money
from dealer_server.rules.notices.notice import AnyNoticeType, types_of
from dealer_server.rules.notices.texts import Text, text_of
from dealer_server.rules.reports.period import start_of
from dealer_server.store.notices import listing, marks, recipients
from dealer_server.store.notices.listing import Outcome
from dealer_server.store.notices.outbox import Notice

_KINDS: Mapping[str, Sequence[AnyNoticeType]] = {title.lower(): types for title, types in GROUPS.items()}
UNREAD = "unread"
SIZE = 100
"""Notices of a page: those of plans that have ended are one line of it."""


class Row(NamedTuple):
    """`level`: how urgent it is, as of an incident; "past" of plans that have ended, on `ended`. `failed`: mails
    and POSTs that told nobody."""

    notice: Notice
    text: Text
    level: str
    unread: bool
    failed: Sequence[Outcome]
    ended: date | None


class Line(NamedTuple):
    """One notice, or several under a `title`, the newest first."""

    rows: Sequence[Row]
    title: str = ""


async def _unread(context: RequestContext) -> int:
    """For the menu."""
    async with context.parts.database.connection() as connection:
        mark = await marks.of_user(connection, context.user.user_id)
        return len(await marks.unread(connection, context.tenant_id, types_of(context.user.full_role), mark))


@page(NOTICES, DEALERS, "dealer/notices.html", MenuEntry("Notices", "bell", 11, waiting=_unread))
async def notices(context: RequestContext) -> Html:
    """The newest first. Those of plans that have ended are one line, unless there are few others or they are asked
    for."""
    user, before = context.user, params.number(context.query, "before")
    own, kind = types_of(user.full_role), params.one_of(context.query, "kind", (UNREAD, *_KINDS)) or ""
    types = [name for name in _KINDS[kind] if name in own] if kind in _KINDS else own
    async with context.parts.database.connection() as connection:
        mark = await marks.of_user(connection, user.user_id)
        unread = await marks.unread(connection, context.tenant_id, own, mark)
        found = await listing.newest(connection, context.tenant_id, types, before, SIZE + 1)
        known = await listing.outcomes(connection, context.tenant_id, [one.notice_id for one in found])
        url = await recipients.url(connection, context.tenant_id)
        left = await profiles.ending_by_day(connection, context)
    shown = [one for one in found[:SIZE] if kind != UNREAD or mark.is_unread(one.notice_id)]
    failed = defaultdict[int, list[Outcome]](list)
    for outcome in known:
        if outcome.state == "FAILED":
            failed[outcome.notice_id].append(outcome)
    rows = [_row(one, mark.is_unread(one.notice_id), failed[one.notice_id], left) for one in shown]
    following = found[SIZE - 1].notice_id if len(found) > SIZE and kind != UNREAD else None
    lines = [Line([row]) for row in rows] if kind == "customers" else _lines(rows, context.now)
    return Html(
        lines=lines,
        newest=found[0].notice_id if found else 0,
        unread=len(unread),
        kind=kind,
        kinds=[(title.lower(), title) for title, types in GROUPS.items() if set(types) & set(own)],
        url=url,
        mails=context.parts.settings.mails,
        pages=params.pager(context, NOTICES, following, size=SIZE),
    )


def _lines(rows: Sequence[Row], now: datetime) -> list[Line]:
    """The newest first, where several rows are one line: plans that have ended are one of each week."""
    lines = _joined([row for row in rows if not row.ended])
    for _, found in groupby((row for row in rows if row.ended), _week):
        week = list(found)
        lines.append(Line(week, _title(week, now) if week[1:] else ""))
    return sorted(lines, key=lambda its: _at(its.rows[0]), reverse=True)


def _at(row: Row) -> datetime:
    """The time that its line shows: of plans that have ended the end of that day."""
    return start_of(row.ended + timedelta(days=1)) if row.ended else row.notice.created_at


def _joined(rows: Sequence[Row]) -> list[Line]:
    """Top-ups that were approved one after the other are one line."""
    lines = list[Line]()
    for currency, found in groupby(rows, _approved_in):
        run = list(found)
        if currency is None or not run[1:]:
            lines += [Line([row]) for row in run]
        else:
            amount = sum(money.parse(row.notice.data["amount"], currency) for row in run)
            lines.append(Line(run, f"{many(len(run), 'top-up')} approved, {money.shown(amount, currency)}"))
    return lines


def _approved_in(row: Row) -> str | None:
    """The currency of a top-up that was approved; None where somebody was not told of it, which its own line says."""
    data = row.notice.data
    approved = row.notice.notice_type == "TOPUP_REVIEWED" and data["status"] == "APPROVED" and not row.failed
    return data["currency"] if approved else None


def _row(one: Notice, unread: bool, failed: Sequence[Outcome], left: Mapping[date, EndingPlans]) -> Row:
    text = text_of(one.notice_type, one.data)
    level, ended = "fault" if text.urgent else "note", None
    if one.notice_type == "PLANS_ENDING":
        day = date.fromisoformat(one.data["date"])
        told, still, today = int(one.data["count"]), left[day].plans if day in left else 0, min(left)
        level = "waiting" if still else "note" if day > today else "past"
        if level == "past":
            text, ended = text._replace(subject=f"{many(told, 'plan')} ended"), day
        elif still != told:
            text = text._replace(subject=f"{text.subject}, {still or 'none'} still in use")
        if still:
            text = text._replace(sentence=left[day].sentence)
    text = text._replace(
        subject=text.subject.replace(f" {one.data.get('currency')}", f"\u00a0{one.data.get('currency')}")
    )
    if not (unread or text.urgent) or level == "past":
        text = text._replace(sentence="")
    return Row(one, text, level, unread, failed, ended)


def _week(row: Row) -> tuple[int, int]:
    """In which its plans ended."""
    year, week, _ = row.ended.isocalendar() if row.ended else (0, 0, 0)
    return year, week


def _title(rows: Sequence[Row], now: datetime) -> str:
    """Of notices of plans that have ended, the newest first."""
    plans = sum(int(row.notice.data["count"]) for row in rows)
    first, last = (start_of(date.fromisoformat(row.notice.data["date"])) for row in (rows[-1], rows[0]))
    begin = str(first.day) if first.month == last.month else dates.short_day(first, now)
    return f"{many(plans, 'plan')} ended, {begin} to {dates.short_day(last, now)}"
