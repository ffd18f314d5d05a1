"""The audit log: who did what, when, from where. It can only grow."""

import json
from urllib.parse import quote

from dealer_server.console.find import choice, tabs
from dealer_server.console.operator.audit_words import ACTIONS
from dealer_server.console.shared import params, words
from dealer_server.console.shared.page import MenuEntry, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.store.console import audit as console_audit
from dealer_server.store.console.audit import Act, ActFilter
from dealer_server.store.console.pages import ListPage

_PAGES = {"orderNo": "/console/orders/", "profileId": "/console/profiles/", "packageCode": "/console/packages/"}
"""Of what a fact names, where that is never removed."""


@page("/console/audit", OPERATORS, "operator/audit.html", MenuEntry("Audit log", "history", 160), listing=True)
async def audit(context: RequestContext) -> Html:
    query = context.query
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, query.get("dealer"))
    filters = ActFilter(
        author=params.text(query, "author"),
        action=params.text(query, "action"),
        tenant_id=dealer.tenant_id,
        start=params.day(query, "from"),
        end=params.day(query, "to", after=True),
    )
    faults = params.faults(query)
    found = ListPage[Act]((), None)
    if not faults:
        async with context.parts.database.connection() as connection:
            found = await console_audit.list_acts(connection, filters, params.number(query, "before"), PAGE_SIZE)
    return Html(
        acts=[(act, ACTIONS.get(act.action, act.action), *_facts_and_changes(act)) for act in found.rows],
        dealer=dealer,
        tabs=await tabs.of(context, "/console/audit", tabs.days(context)),
        faults=faults,
        filtered=bool(faults) or filters != ActFilter(),
        pager=params.pager(context, "/console/audit", found.next, shown=len(found.rows), word="entry"),
    )


def _facts_and_changes(act: Act) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """(name, value, page or "") of its facts, and (name, before, after) of what it changed."""
    detail: dict[str, object] = json.loads(act.detail)
    before, after = detail.pop("before", None), detail.pop("after", None)
    facts = [(name, text, _page(name, text)) for name, text in ((name, _text(value)) for name, value in detail.items())]
    if not isinstance(after, dict):
        return facts, []
    old = before if isinstance(before, dict) else {}
    said = str if act.action.startswith("price_list.") else words.label  # there a name may be a packageCode
    return facts, [(said(name), _text(old.get(name)), _text(value)) for name, value in after.items()]


def _page(name: str, value: str) -> str:
    return _PAGES[name] + quote(value, safe="") if name in _PAGES else ""


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
