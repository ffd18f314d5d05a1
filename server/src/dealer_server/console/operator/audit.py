"""The audit log: who did what, when, from where. It can only grow."""

import json

from dealer_server.console import asked
from dealer_server.console.operator import own
from dealer_server.console.operator.own import LOOK, PAGE
from dealer_server.console.visit import Page, Route, Visit
from dealer_server.store import console_audit
from dealer_server.store.console_audit import Act, Wanted


async def audit(visit: Visit) -> Page:
    query = visit.query
    wanted = Wanted(
        asked.text(query, "author"),
        asked.text(query, "action"),
        asked.number(query, "dealer"),
        asked.day(query, "from"),
        asked.day(query, "to", after=True),
    )
    async with visit.parts.database.connection() as connection:
        found = await console_audit.page(connection, wanted, asked.number(query, "before"), PAGE)
    return own.page(
        visit,
        "audit",
        acts=[(one, *_told(one)) for one in found.rows],
        filtered=wanted != Wanted(),
        pager=asked.pager(visit, "/console/audit", found.next),
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
