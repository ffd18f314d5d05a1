"""Which filters does a list offer by name? Presets, and those that the user has saved."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.store.console import kept

Presets = Sequence[tuple[str, Mapping[str, str]]]
"""Names and filters."""


class Tab(NamedTuple):
    """`view_id`: of one that the user has saved. `listed`: how many it lists, 0 where that is not told."""

    name: str
    href: str
    current: bool
    view_id: int | None = None
    listed: int = 0


class Tabs(NamedTuple):
    """`query`: the filters that may be saved; "" where there are none, or a tab has them already."""

    path: str
    tabs: Sequence[Tab]
    query: str

    @property
    def chosen(self) -> Tab | None:
        """The saved view that is shown."""
        return next((tab for tab in self.tabs if tab.current and tab.view_id is not None), None)


def days(context: RequestContext) -> list[tuple[str, dict[str, str]]]:
    """Presets of lists with days, in UTC."""
    today = context.now.date()
    yesterday, week = today - timedelta(days=1), today - timedelta(days=6)
    return [
        ("Today", {"from": f"{today}", "to": f"{today}"}),
        ("Yesterday", {"from": f"{yesterday}", "to": f"{yesterday}"}),
        ("7 days", {"from": f"{week}", "to": f"{today}"}),
    ]


async def of(context: RequestContext, path: str, presets: Presets, counts: Mapping[str, int] | None = None) -> Tabs:
    """The tabs of the list at this path. `counts`: how many presets list, by their names."""
    used = {name: value for name, value in params.filters(context).items() if value}
    async with context.parts.database.connection() as connection:
        saved = await kept.views(connection, context.user.user_id, path)
    tabs = [Tab("All", path, not used)]
    told = counts or {}
    tabs += [Tab(name, params.address(path, query), used == query, listed=told.get(name, 0)) for name, query in presets]
    tabs += [
        Tab(view.name, f"{path}?{view.query}", used == dict(parse_qsl(view.query)), view.view_id) for view in saved
    ]
    known = any(tab.current for tab in tabs)
    return Tabs(path, tabs, "" if known else urlencode(sorted(used.items())))
