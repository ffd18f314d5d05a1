"""Which filters does a list offer by name? Presets, and those that the user has saved."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.store.console import kept

Presets = Sequence[tuple[str, dict[str, str]]]
"""Names and filters."""


class Tab(NamedTuple):
    """`view_id`: of one that the user has saved. `listed`: how many it lists, "" where that is not told. `problem`:
    what it lists needs attention. `task`: it lists what is to be done, a part of what others list."""

    name: str
    href: str
    current: bool
    view_id: int | None = None
    listed: str = ""
    problem: bool = False
    task: bool = False


class Tabs(NamedTuple):
    """`query`: the filters that may be saved; "" where there are none, or a tab has them already."""

    path: str
    tabs: Sequence[Tab]
    query: str

    @property
    def chosen(self) -> Tab | None:
        """The saved view that is shown."""
        return next((tab for tab in self.tabs if tab.current and tab.view_id is not None), None)


async def of(
    context: RequestContext,
    path: str,
    presets: Presets,
    counts: Mapping[str, int] | None = None,
    most: int = 0,
    *,
    every: Mapping[str, str] | None = None,
    first: str = "",
    parts: Mapping[str, str] | None = None,
    problems: str = "",
    tasks: Collection[str] = (),
) -> Tabs:
    """The tabs of the list at this path. `counts`: how many presets list, by their names, and "All" of them; `most`: no
    more are counted. A preset changes its own filter and keeps the others, and the order of the list.
    `every`: what asks for all of them, where nothing asks for the preset `first`. `parts`: values of a filter that list
    a part of a preset, and the value of that preset. `problems`: the preset of what needs attention. `tasks`: presets
    of what is to be done, which are there while they list any, or one is shown."""
    typed = {name: value for name, value in params.filters(context).items() if value}
    order = {name: value for name, value in typed.items() if name not in params.asked(context)}
    used = {name: (parts or {}).get(value, value) for name, value in params.asked(context).items()}
    async with context.parts.database.connection() as connection:
        views = await kept.views(connection, context.user.user_id, path)
    saved = [
        Tab(view.name, f"{path}?{view.query}", typed == dict(parse_qsl(view.query)), view.view_id) for view in views
    ]
    open_view = any(tab.current for tab in saved)
    own = {name for _, query in presets for name in query}
    others = {name: value for name, value in used.items() if name not in own}
    told = counts or {}
    listed = {name: f"{count:,}{'+' if count == most > 0 else ''}" for name, count in told.items()}
    all_of = {**others, **(every or {})} if first else others
    shows_all = not open_view and used in (all_of, others) and (bool(used) or not first)
    of_all = Tab("All", params.address(path, all_of | order), shows_all, listed=listed.get("All", ""))
    tabs = [
        Tab(
            name,
            params.address(path, others | query | order),
            not open_view and (others | query == used or (name == first and not used)),
            listed=listed.get(name, ""),
            problem=name == problems and told.get(name, 0) > 0,
            task=name in tasks,
        )
        for name, query in presets
    ]
    tabs = [tab for tab in tabs if not tab.task or tab.current or told.get(tab.name) != 0]
    tabs.insert(0, of_all)
    known = open_view or not typed or typed in [query for _, query in presets] or bool(first and typed == every)
    return Tabs(path, [*tabs, *saved], "" if known else urlencode(sorted(typed.items())))
