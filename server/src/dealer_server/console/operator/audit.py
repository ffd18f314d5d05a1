"""The audit log: who did what, when, from where. It can only grow."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from dealer_server.console.find import choice, dates, files, tabs
from dealer_server.console.find.choice import Choice
from dealer_server.console.operator.audit_words import ACTIONS, KINDS, changed_page, page_of
from dealer_server.console.shared import params, words
from dealer_server.console.shared.page import MenuEntry, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.money import money, percent
from dealer_server.store.console import audit as console_audit
from dealer_server.store.console.audit import Act, ActFilter
from dealer_server.store.console.pages import ListPage
from dealer_server.store.suppliers.purchase import Hop

AUDIT = "/console/audit"
FILTERS = ("author", "kind", "action", "dealer", "from", "to")
_SILENT = ("", "0", "no", "none", "off", "Active")
"""What says nothing of something new."""
_WORDS = ("status", "kind", "basis", "states", "event", "decision", "outcome", "payStatus", "locationType", "dataType")
"""Fields whose values are words of the contract."""
MOST_HOPS = 10
COLUMNS: Mapping[str, Callable[[Act], str]] = {
    "entry": lambda act: str(act.audit_id),
    "time": lambda act: f"{act.at:%Y-%m-%dT%H:%M:%SZ}",
    "actor": lambda act: act.author,
    "source": lambda act: _source(act),
    "action": lambda act: act.action,
    "tenantId": lambda act: str(act.tenant_id or ""),
    "dealer": lambda act: act.dealer or "",
    "details": lambda act: "; ".join(
        f"{one.name}: {one.was} → {one.text}" if one.was else f"{one.name}: {one.text}" for one in _details(act)
    ),
}
FIRST, CHANGES, ALL = "Changes", "changes", "all"
"""The tab that is shown until something is asked for, which leaves out sign-ins; what asks for it, and for all."""
TAB_KINDS = ("orders", "money")
"""Kinds that are tabs; the filter has the others."""
_CODE = re.compile(r"[A-Z]?\d{15,}|ak_\w+")
_ARTICLE = re.compile(" an? ")
_AMOUNTS = ("amount", "balance", "creditLimit", "lowBalanceThreshold")
_LIST_FIELDS = ("name", "basis", "markup")
"""Of price lists."""


class Told(NamedTuple):
    """One detail of an act. `page`: that of what it names; `was`: the value before a change; `silent`: what is new has
    it by default."""

    name: str
    text: str
    page: str = ""
    was: str = ""
    silent: bool = False

    @property
    def is_code(self) -> bool:
        """Whether it is a number or key of ours."""
        return _CODE.fullmatch(self.text) is not None


class Shown(NamedTuple):
    """An act. `said`: what was done; `thing`: to what, where that has a number or code of its own; `page`: that of what
    it changed; `by`: how it was done."""

    act: Act
    said: str
    thing: Told | None
    page: str
    by: str
    details: Sequence[Told]


class Run(NamedTuple):
    """What one actor did at once, in one second, again and again: the newest first. `names`: of what was changed."""

    entries: Sequence[Shown]
    names: Sequence[str]


@page(AUDIT, OPERATORS, "operator/audit.html", MenuEntry("Audit log", "history", 160), listing=True)
async def audit(context: RequestContext) -> Html:
    (dealer, filters), faults = await _wanted(context), params.faults(context.query)
    chosen = filters.action
    found = ListPage[Act]((), None)
    if not faults:
        async with context.parts.database.connection() as connection:
            found = await console_audit.list_acts(
                connection, filters, params.number(context.query, "before"), PAGE_SIZE
            )
    kind = context.query.get("kind", "")
    return Html(
        runs=[_run(list(run)) for _, run in groupby(found.rows, _at_once)],
        actions=_choices(chosen),
        said=ACTIONS.get(chosen or "", chosen or ""),
        dealer=dealer,
        tabs=await tabs.of(
            context,
            AUDIT,
            [(FIRST, {"kind": CHANGES}), *((KINDS[key].name, {"kind": key}) for key in TAB_KINDS)],
            every={"kind": ALL},
            first=FIRST,
        ),
        kind=kind,
        kinds=[
            (kind if kind in (CHANGES, ALL) else "", "Any kind"),
            *((key, kind.name) for key, kind in KINDS.items() if key not in TAB_KINDS),
        ],
        tab_kinds=TAB_KINDS,
        dates=dates.of(context, AUDIT),
        faults=faults,
        filtered=bool(faults) or filters._replace(without=None) != ActFilter(),
        export=params.address(f"{AUDIT}.csv", params.filters(context)),
        pager=params.pager(context, AUDIT, found.next, shown=len(found.rows), word="entry"),
    )


@download(f"{AUDIT}.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    """All entries that the filters find, the newest first; who takes the file is in the log."""
    _, wanted = await _wanted(context)
    await params.record_export(context, "audit.export", wanted.tenant_id, FILTERS)

    def read(connection: Connection, seen: int | None, size: int) -> Awaitable[ListPage[Act]]:
        return console_audit.list_acts(connection, wanted, seen, size)

    return files.download(context, "audit-log", COLUMNS, read)


async def _wanted(context: RequestContext) -> tuple[Choice, ActFilter]:
    """The dealer that is named, and all filters."""
    query, chosen = context.query, params.text(context.query, "action")
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, query.get("dealer"))
    return dealer, ActFilter(
        author=params.text(query, "author"),
        action=chosen,
        tenant_id=dealer.tenant_id,
        start=params.day(query, "from"),
        end=params.day(query, "to", after=True),
        whole=chosen in ACTIONS,
        actions=KINDS[kind].actions if (kind := params.one_of(query, "kind", tuple(KINDS))) else None,
        without="user.sign_in" if query.get("kind") == CHANGES or not params.asked(context) else None,
    )


def _at_once(act: Act) -> tuple[object, ...]:
    """What acts that stand in one row have in common."""
    return act.author, act.action, act.source, act.tenant_id, act.at.replace(microsecond=0)


def _run(acts: Sequence[Act]) -> Run:
    entries = [_shown(act) for act in acts]
    named = [entry.thing or next(iter(entry.details), None) for entry in entries]
    return Run(entries, [one.text for one in named if one is not None])


def _choices(chosen: str | None) -> list[tuple[str, str]]:
    """The options of the filter: every action, and a part of some where the address asks for one."""
    part = [(chosen, chosen)] if chosen and chosen not in ACTIONS else []
    return [("", "All actions"), *part, *sorted(ACTIONS.items(), key=lambda one: one[1])]


def _shown(act: Act) -> Shown:
    source = act.source or ""
    by = "Command line" if source.startswith("cli ") or act.author.startswith("cli:") else ""
    from_where = [Told("Source" if by else "Address", source)] if source else []
    page = changed_page(act.action, act.tenant_id, json.loads(act.detail))
    details = [one for one in _details(act) if act.action != "user.sign_in" or one.text != words.actor(act.author)]
    thing = next((one for one in details if page and one.page == page), None)
    said = ACTIONS.get(act.action, act.action)
    if thing:  # Approved a top-up: Approved top-up T2611…
        said, details = _ARTICLE.sub(" ", said), [one for one in details if one is not thing]
    ordered = sorted(details, key=lambda one: (one.name != words.label("amount"), not one.was))
    return Shown(act, said, thing, page, by, [*ordered, *from_where])


def _source(act: Act) -> str:
    """Where it came from, without what the author says already: of "cli root@vm pid 7", by cli:root@vm, "pid 7"."""
    return (act.source or "").removeprefix(act.author.replace(":", " ")).strip()


def _details(act: Act) -> Sequence[Told]:
    """Its facts, and what it changed."""
    detail: dict[str, object] = json.loads(act.detail)
    detail.pop("entryVersion", None)
    before, after = detail.pop("before", None), detail.pop("after", None)
    if act.action == "supplier.route":
        before, after = _route(before, detail.pop("floorBefore", "")), _route(after, detail.pop("floorAfter", ""))
    if act.action in ("refund.approve", "refund.reject"):  # the action says it
        before = after = None
    unit = "" if "currency" in detail else f" {act.currency or ''}".rstrip()

    def text(name: str, value: object) -> str:
        return _text(name, value) + (unit if name in _AMOUNTS and value else "")

    facts = [Told(words.label(name), text(name, value), page_of(name, value)) for name, value in detail.items()]
    if not isinstance(after, dict):
        return facts
    if act.action in ("topup.approve", "topup.reject"):
        after = {name: value for name, value in after.items() if name != "status"}
    old = before if isinstance(before, dict) else {}
    said = _of_list if act.action.startswith("price_list.") else words.label
    silent = (*_SILENT, act.dealer) if act.action.endswith(".create") else None
    changes = [
        (name, new := text(name, value), _before(text(name, old.get(name)), new)) for name, value in after.items()
    ]
    if act.action == "supplier.route":
        changes = [(name, new or "none", was) for name, new, was in changes if new != was]
    return facts + [
        Told(said(name), new, "", was, _is_silent(_text(name, after[name]), silent)) for name, new, was in changes
    ]


def _before(was: str, new: str) -> str:
    """An amount before a change, without the currency that the one after it has: 0.00 → 25.00 USD."""
    number, _, unit = was.partition(" ")
    return number if len(unit) == 3 and unit.isupper() and new.endswith(f" {unit}") else was


def _of_list(name: str) -> str:
    """A field of a price list; else it is a packageCode."""
    return words.label(name) if name in _LIST_FIELDS else name


def _route(hops: object, floor: object) -> dict[str, object]:
    """A route as people say it, position by position; all positions, so that two of them compare. `floor`: in basis
    points, None for the platform's, "" where it did not change."""
    told: dict[str, object] = {f"Position {at}": "" for at in range(1, MOST_HOPS + 1)}
    for at, hop in enumerate(hops if isinstance(hops, list) else [], 1):
        if not isinstance(hop, list) or len(hop) != len(Hop._fields):
            continue
        supplier, sku, cost, currency = hop
        asked = "no cost known" if cost is None else f"{money.fine_text(cost)} {currency}"
        told[f"Position {at}"] = f"{supplier} as {sku}, {asked}"
    if floor != "":
        told["Margin floor"] = "the platform's" if floor is None else percent.shown(int(str(floor)))
    return told


def _is_silent(text: str, silent: Sequence[str | None] | None) -> bool:
    """`silent`: what says nothing of something new, such as its name, which stands beside it; None: it is not new."""
    return silent is not None and (text in silent or not text.strip("0.% "))


def _text(name: str, value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() if name == "markupBasisPoints":
            return percent.shown(value)
        case int():
            return f"{value:,}"
        case str() if name in _AMOUNTS:
            return money.grouped(value)
        case str() if name == "markup":
            return f"{money.grouped(value)} %"
        case str():
            return words.role(value) if name == "role" else words.text(value) if name in _WORDS else value
        case list():
            return ", ".join(_text(name, one) for one in value) or "none"
        case dict():
            return "; ".join(f"{words.label(key)} {_text(key, one) or 'none'}" for key, one in value.items())
        case _:
            return str(value)
