"""What do addresses and forms say, and what do lists and files write? Shared by all views."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlencode

from dealer_server.console.shared.request_context import NotFound, RequestContext
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.audit import audit_log

TRAIL = 40


class Pager(NamedTuple):
    """Addresses of the pages before and after, "" for none."""

    previous: str
    next: str
    text: str


def text(given: Mapping[str, str], name: str) -> str | None:
    return given.get(name, "").replace("\0", "").strip() or None


def number(given: Mapping[str, str], name: str) -> int | None:
    """None for what is no number of ours."""
    said = given.get(name, "").strip()
    return int(said) if said.isascii() and said.isdigit() and len(said) <= 18 else None


def named(context: RequestContext, name: str) -> int:
    """The number that a page's path names. Raises NotHere."""
    if (said := number(context.path, name)) is None:
        raise NotFound
    return said


def one_of(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str | None:
    return said if (said := given.get(name, "")) in words else None


def day(given: Mapping[str, str], name: str, *, after: bool = False) -> datetime | None:
    """The beginning of a day such as 2026-11-20, in UTC; `after`: of the day that follows."""
    try:
        at = datetime.strptime(given.get(name, ""), "%Y-%m-%d").replace(tzinfo=UTC)
        return at + timedelta(days=1) if after else at
    except (ValueError, OverflowError):
        return None


def choices(anything: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """What a filter can be set to; `anything` is its word where it is not."""
    return [("", anything), *((word, word) for word in words)]


WRITTEN: Mapping[str, object] = {
    "major": money.text,
    "order_no": identity.order_no,
    "topup_no": identity.topup_no,
    "refund_no": identity.refund_no,
    "created_at": identity.created_at,
    "choices": choices,
}
"""What templates write numbers, amounts and filters with."""


def address(path: str, query: Mapping[str, object]) -> str:
    """A path with what is set of a query."""
    said = urlencode({name: value for name, value in query.items() if value not in ("", None)})
    return f"{path}?{said}" if said else path


def pager(context: RequestContext, path: str, following: int | str | None, words: str = "") -> Pager:
    """Pages go on after the last row seen; the address keeps where the ones before began."""
    kept = {name: value for name, value in context.query.items() if name not in ("before", "trail")}
    before = context.query.get("before", "")
    trail = [part for part in context.query.get("trail", "").split("~") if part]
    back = {"before": trail[-1] if trail else "", "trail": "~".join(trail[:-1])}
    on = {"before": following, "trail": "~".join([*trail, before][-TRAIL:]).strip("~")}
    return Pager(
        address(path, kept | back) if before else "", "" if following is None else address(path, kept | on), words
    )


async def exported(context: RequestContext, action: str, tenant_id: int | None, filters: Sequence[str]) -> None:
    """Somebody takes a file with them: which one, and with which of the filters set, is in the audit log."""
    detail = {name: given for name in filters if (given := text(context.query, name))}
    await context.parts.database.run(
        lambda connection: audit_log.record_act(connection, context.author, action, tenant_id, detail)
    )


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    """Rows of a file for spreadsheet programs, which take no cell of it for a formula."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows([_plain(cell) for cell in row] for row in rows)
    return out.getvalue().encode()


def _plain(cell: str) -> str:
    risky = cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if risky else cell
