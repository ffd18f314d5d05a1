"""What is open, and what is over? The incidents of the overview and what operators were told of, one line a subject."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.console.auth.notices import NOTICES, OPERATOR_READERS
from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.notices.tabs import STATES, State, tabs
from dealer_server.console.shared import params
from dealer_server.console.shared.concern import Link
from dealer_server.console.shared.incidents import IncidentRow
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.incidents.incident import DECIDED, Level
from dealer_server.rules.notices.notice import OPERATORS, types_of
from dealer_server.rules.notices.subjects import GROUPS, Subject, covers, group, subject
from dealer_server.rules.notices.texts import Text, text_of
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.notices import marks, states
from dealer_server.store.notices.marks import Mark
from dealer_server.store.notices.states import Told

OPEN, ENDED = 500, 100
"""Notices that are looked at: of open subjects, and of those that are over on one page."""
FEW, LATELY = 8, 5
"""Below fewer open subjects so many stand that are over."""


class Line(NamedTuple):
    """A subject. `incident`: as the overview has it, of one that is open. `told`: its notices, the newest first.
    `ended_at`: when it was over; None of one that is open."""

    subject: Subject
    incident: IncidentRow | None
    told: Sequence[Told]
    unread: bool
    ended_at: datetime | None = None

    @property
    def since(self) -> datetime | None:
        """Since when it has been so."""
        return self.incident.incident.since if self.incident else None

    @property
    def arose_at(self) -> datetime | None:
        """When it began, or when it was told of first."""
        return self.since or (min(one.created_at for one in self.told) if self.told else None)

    @property
    def text(self) -> str:
        """Without since when, which stands beside it."""
        return self.incident.incident.text if self.incident else self.newest.subject

    @property
    def detail(self) -> str:
        return self.incident.incident.detail if self.incident else self.newest.sentence

    @property
    def level(self) -> Level:
        """Of one that is open."""
        if self.incident:
            return self.incident.incident.level
        return "fault" if self.newest.urgent else "waiting" if self.subject.kind in DECIDED else "degraded"

    @property
    def links(self) -> Sequence[Link]:
        return self.incident.links if self.incident else [Link(self.newest.link, self.newest.path)]

    @property
    def newest(self) -> Text:
        return text_of(self.told[0].notice_type, self.told[0].data)


async def _unread_subjects(context: RequestContext) -> int:
    """For the menu: of the newest notices, how many subjects are new."""
    async with context.parts.database.connection() as connection:
        mark = await marks.of_user(connection, context.user.user_id)
        found = await marks.unread(connection, OPERATORS, types_of(context.user.full_role), mark)
    return len({subject(one.notice_type, one.data) for one in found})


@page(NOTICES, OPERATOR_READERS, "operator/notices/inbox.html", MenuEntry("Notices", "bell", 11, _unread_subjects))
async def inbox(context: RequestContext) -> Html:
    asked: State | None = params.one_of(context.query, "state", STATES)
    state = asked or "open"
    kind, before = params.one_of(context.query, "kind", tuple(GROUPS)), params.number(context.query, "before")
    types = types_of(context.user.full_role)
    async with context.parts.database.connection() as connection:
        mark = await marks.of_user(connection, context.user.user_id)
        open_lines = await _open(connection, context, types, mark)
        few = state == "open" and len(open_lines) < FEW and kind is None
        ended = await states.ended(connection, types, before, ENDED) if few or state != "open" else []
    over = _ended(ended, mark)
    lines = [*(open_lines if state != "resolved" and before is None else ()), *(over if state != "open" else ())]
    shown = [one for one in lines if kind is None or group(one.subject.kind) == kind]
    following = ended[-1].notice_id if len(ended) == ENDED and state != "open" else None
    return Html(
        state=state,
        lines=shown,
        lately=over[:LATELY] if few else (),
        filtered=kind is not None or before is not None,
        faults=params.faults(context.query, kind=tuple(GROUPS)),
        counts={"open": _count(open_lines)},
        tabs=tabs(kind),
        kinds=[("", "Any type"), *((name, name) for name in GROUPS)],
        newest=max((told.notice_id for line in lines for told in line.told), default=0),
        unread=sum(line.unread for line in lines),
        pages=params.pager(context, NOTICES, following),
    )


async def count_open(connection: Connection, context: RequestContext) -> int:
    """How many subjects are open, for the tabs."""
    types = types_of(context.user.full_role)
    return _count(await _open(connection, context, types, await marks.of_user(connection, context.user.user_id)))


def _count(lines: Sequence[Line]) -> int:
    """What needs attention, as the overview counts it: no notes."""
    return sum(line.level != "note" for line in lines)


async def _open(connection: Connection, context: RequestContext, types: Sequence[str], mark: Mark) -> list[Line]:
    """The worst first; then what was told of and is no incident."""
    told = _by_subject(await states.open_ones(connection, types, OPEN))
    lines = list[Line]()
    suppliers = await console_suppliers.list_suppliers(connection)
    counts = await findings.call_counts(connection, suppliers, context.now)
    for row in await findings.incidents(connection, context, suppliers, counts):
        of = Subject(row.incident.kind, row.incident.subject)
        mine = [one for other in [*told] if covers(row.incident, other) for one in told.pop(other)]
        lines.append(Line(of, row, sorted(mine, key=_newest_first), _unread(mine, mark)))
    return [*lines, *(Line(of, None, mine, _unread(mine, mark)) for of, mine in told.items())]


def _ended(found: Iterable[Told], mark: Mark) -> list[Line]:
    return [
        Line(of, None, told, _unread(told, mark), max(one.ended_at for one in told if one.ended_at))
        for of, told in _by_subject(found).items()
    ]


def _by_subject(found: Iterable[Told]) -> dict[Subject, list[Told]]:
    by_subject = defaultdict[Subject, list[Told]](list)
    for one in found:
        if (of := subject(one.notice_type, one.data)) is not None:
            by_subject[of].append(one)
    return by_subject


def _newest_first(one: Told) -> int:
    return -one.notice_id


def _unread(told: Iterable[Told], mark: Mark) -> bool:
    return any(mark.is_unread(one.notice_id) for one in told)
