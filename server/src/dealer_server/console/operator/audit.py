"""The audit log: who did what, when, from where. It can only grow."""

import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from dealer_server.console.find import choice, dates, tabs
from dealer_server.console.operator.audit_words import ACTIONS
from dealer_server.console.shared import params, words
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.rules.money import money, percent
from dealer_server.store.console import audit as console_audit
from dealer_server.store.console.audit import Act, ActFilter
from dealer_server.store.console.pages import ListPage

_PAGES = {"orderNo": "/console/orders/", "profileId": "/console/profiles/", "packageCode": "/console/packages/"}
"""Of what a fact names, where that is never removed."""
_SILENT = ("", "0", "no", "none", "off", "ACTIVE")
"""What says nothing of something new."""
_AMOUNTS = ("amount", "balance", "creditLimit", "lowBalanceThreshold")


class Told(NamedTuple):
    """One detail of an act. `page`: that of what it names; `was`: the value before a change; `silent`: what is new has
    it by default."""

    name: str
    text: str
    page: str = ""
    was: str = ""
    silent: bool = False


@page("/console/audit", OPERATORS, "operator/audit.html", MenuEntry("Audit log", "history", 160), listing=True)
async def audit(context: RequestContext) -> Html:
    query, chosen = context.query, params.text(context.query, "action")
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, query.get("dealer"))
    filters = ActFilter(
        author=params.text(query, "author"),
        action=chosen,
        tenant_id=dealer.tenant_id,
        start=params.day(query, "from"),
        end=params.day(query, "to", after=True),
        whole=chosen in ACTIONS,
    )
    faults = params.faults(query)
    found = ListPage[Act]((), None)
    if not faults:
        async with context.parts.database.connection() as connection:
            found = await console_audit.list_acts(connection, filters, params.number(query, "before"), PAGE_SIZE)
    return Html(
        acts=[(act, ACTIONS.get(act.action, act.action), _source(act), _details(act)) for act in found.rows],
        actions=_choices(chosen),
        said=ACTIONS.get(chosen or "", chosen or ""),
        dealer=dealer,
        tabs=await tabs.of(context, "/console/audit", []),
        dates=dates.of(context, "/console/audit"),
        faults=faults,
        filtered=bool(faults) or filters != ActFilter(),
        pager=params.pager(context, "/console/audit", found.next, shown=len(found.rows), word="entry"),
    )


def _choices(chosen: str | None) -> list[tuple[str, str]]:
    """The options of the filter: every action, and a part of some where the address asks for one."""
    part = [(chosen, chosen)] if chosen and chosen not in ACTIONS else []
    return [("", "All actions"), *part, *sorted(ACTIONS.items(), key=lambda one: one[1])]


def _source(act: Act) -> str:
    """Where it came from, without what the author says already: of "cli root@vm pid 7", by cli:root@vm, "pid 7"."""
    return (act.source or "").removeprefix(act.author.replace(":", " ")).strip()


def _details(act: Act) -> Sequence[Told]:
    """Its facts, and what it changed."""
    detail: dict[str, object] = json.loads(act.detail)
    detail.pop("entryVersion", None)
    before, after = detail.pop("before", None), detail.pop("after", None)
    facts = [Told(words.label(name), _text(name, value), _page(name, value)) for name, value in detail.items()]
    if not isinstance(after, dict):
        return facts
    old = before if isinstance(before, dict) else {}
    said = str if act.action.startswith("price_list.") else words.label  # there a name may be a packageCode
    silent = (*_SILENT, act.dealer) if act.action.endswith(".create") else None
    changes = [(name, _text(name, value), _text(name, old.get(name))) for name, value in after.items()]
    return facts + [Told(said(name), text, "", was, _is_silent(text, silent)) for name, text, was in changes]


def _is_silent(text: str, silent: Sequence[str | None] | None) -> bool:
    """`silent`: what says nothing of something new, such as its name, which stands beside it; None: it is not new."""
    return silent is not None and (text in silent or not text.strip("0.% "))


def _page(name: str, value: object) -> str:
    return _PAGES[name] + quote(str(value), safe="") if name in _PAGES else ""


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
            return value
        case list() if all(isinstance(one, str) for one in value):
            return ", ".join(value) or "none"
        case _:
            return json.dumps(value, ensure_ascii=False)
