"""The audit log: who did what, when, from where. It can only grow."""

import json

from dealer_server.console.operator import permissions
from dealer_server.console.operator.permissions import LOOK, PAGE
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Page, RequestContext, Route
from dealer_server.store.console import audit as console_audit
from dealer_server.store.console.audit import Act, Wanted


async def audit(context: RequestContext) -> Page:
    query = context.query
    wanted = Wanted(
        params.text(query, "author"),
        params.text(query, "action"),
        params.number(query, "dealer"),
        params.day(query, "from"),
        params.day(query, "to", after=True),
    )
    async with context.parts.database.connection() as connection:
        found = await console_audit.page(connection, wanted, params.number(query, "before"), PAGE)
    return permissions.page(
        context,
        "audit",
        acts=[(one, *_told(one)) for one in found.rows],
        filtered=wanted != Wanted(),
        pager=params.pager(context, "/console/audit", found.next),
    )


def _told(act: Act) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """What an act says: its facts, and what it changed from what to what."""
    detail: dict[str, object] = json.loads(act.detail)
    before, after = detail.pop("before", None), detail.pop("after", None)
    if not isinstance(after, dict):
        return [(name, _said(value)) for name, value in detail.items()], []
    was = before if isinstance(before, dict) else {}
    changes = [(name, _said(was.get(name)), _said(value)) for name, value in after.items()]
    return [(name, _said(value)) for name, value in detail.items()], changes


def _said(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


ROUTES: tuple[Route, ...] = (Route("GET", "/console/audit", LOOK, audit, "Audit log"),)
