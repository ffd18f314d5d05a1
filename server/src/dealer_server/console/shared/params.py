"""How are parameters of queries and forms read, and how are pagers and CSV files written?"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import NotFound, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.rules import dates
from dealer_server.rules.orders import identity
from dealer_server.store.audit import audit_log

PAGE_SIZE = 25
SHORT_PAGE = 20
"""Of lists that stand below other parts of a page, or have two lines a row."""
COUNTED = 10_000
"""Of a list that grows with orders no more rows are counted."""
CREATED, NEWEST_FIRST, OLDEST_FIRST = ("-created",), "-created", "created"
"""How lists of what is never forgotten are ordered: by their ids, which hold time, either way round."""
TRAIL = 40
Word = TypeVar("Word", bound=str)
T = TypeVar("T")


class Pager(NamedTuple):
    """Addresses of the pages before and after, "" for none. `noun`: what `text` counts, where it does not say."""

    previous: str
    next: str
    text: str
    noun: str = ""


def text(fields: Mapping[str, str], name: str) -> str | None:
    return fields.get(name, "").strip() or None


def number(fields: Mapping[str, str], name: str) -> int | None:
    """None for anything but 1 to 18 digits."""
    digits = fields.get(name, "").strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def path_number(context: RequestContext, name: str) -> int:
    """A parameter of the path that is a number. Raises NotFound."""
    if (value := number(context.path, name)) is None:
        raise NotFound
    return value


def one_of(fields: Mapping[str, str], name: str, values: tuple[Word, ...]) -> Word | None:
    return next((value for value in values if value == fields.get(name)), None)


def picked(form: Mapping[str, str], prefix: str, word: str) -> list[str]:
    """What was chosen of a list: its boxes are named `prefix` and a number or code. Raises OperatorError where that is
    nothing, or more than a page."""
    chosen = [name.removeprefix(prefix) for name in form if name.startswith(prefix)]
    if not 1 <= len(chosen) <= PAGE_SIZE:
        raise OperatorError(f"choose 1 to {PAGE_SIZE} {word}s; these are {len(chosen)}")
    return chosen


def day(fields: Mapping[str, str], name: str, *, after: bool = False) -> datetime | None:
    """The beginning of a day such as 2026-11-20, in UTC; `after`: of the day that follows. A minute, such as
    2026-11-20T17:00, is itself."""
    with suppress(ValueError):
        return datetime.strptime(fields.get(name, ""), "%Y-%m-%dT%H:%M").replace(tzinfo=UTC)
    try:
        start = datetime.strptime(fields.get(name, ""), "%Y-%m-%d").replace(tzinfo=UTC)
        return start + timedelta(days=1) if after else start
    except (ValueError, OverflowError):
        return None


def address(path: str, query: Mapping[str, object]) -> str:
    """A path with the parameters that are set."""
    encoded = urlencode({name: value for name, value in query.items() if value not in ("", None)})
    return f"{path}?{encoded}" if encoded else path


def filters(context: RequestContext) -> dict[str, str]:
    """The query without what the pager adds."""
    return {name: value for name, value in context.query.items() if name not in ("before", "trail")}


def asked(context: RequestContext) -> dict[str, str]:
    """What the query asks for, in whichever order."""
    return {name: value for name, value in filters(context).items() if value and name != "sort"}


def pager(
    context: RequestContext,
    path: str,
    following: int | str | None,
    text: str = "",
    *,
    shown: int = 0,
    word: str = "",
    total: int | None = None,
    most: int = 0,
    size: int = PAGE_SIZE,
) -> Pager:
    """Pages continue after the last row seen. The query keeps where the pages before began. `following`: the key after
    which the next page begins, None on the last page. `shown`: how many rows this page has, of what, and of how many
    where that is known; no more than `most` were counted. `size`: of a page."""
    kept, before = filters(context), context.query.get("before", "")
    trail = [part for part in context.query.get("trail", "").split("~") if part]
    back = {"before": trail[-1] if trail else "", "trail": "~".join(trail[:-1])}
    on = {"before": following, "trail": "~".join([*trail, before][-TRAIL:]).strip("~")}
    previous = address(path, kept | back) if before else ""
    next_page = "" if following is None else address(path, kept | on)
    first = (len(trail) + bool(before)) * size + 1 if len(trail) < TRAIL - 1 else None
    known = _known(total, word, most)
    alone = not (previous or next_page)
    told = _counted(shown, word, known, first, alone=alone) if shown else ""
    number, _, noun = told.rpartition(" ") if known and first is not None and not (alone or text) else (told, "", "")
    return Pager(previous, next_page, " · ".join(part for part in (number, text) if part), noun)


def _known(total: int | None, word: str, most: int) -> str:
    """3,412 packages; 10,000+ orders; "" where it is not known."""
    if total is None:
        return ""
    number, _, noun = many(total, word).partition(" ")
    return f"{number}{'+' if total == most > 0 else ''} {noun}"


def _counted(shown: int, word: str, total: str, first: int | None, *, alone: bool) -> str:
    """8 orders; 51–100 of 3,412 packages; 50 orders on this page."""
    if alone:
        return many(shown, word)
    if not total or first is None:
        return f"{many(shown, word)} on this page"
    return f"{first:,}–{first + shown - 1:,} of {total}"


class Order(NamedTuple):
    """How a list is ordered. `key`: one of its columns; "" for the order it has by itself. `links`: for each column
    that it can be ordered by, the address of the list in that order, or the other way round. `typed`: the parameter
    that the filters keep."""

    key: str
    descending: bool
    links: Mapping[str, str]
    typed: str = ""

    def sorted(self, rows: Iterable[T], by: Mapping[str, Callable[[T], Any]]) -> list[T]:
        """The rows of a list that stands on one page. `by`: what of a row each column compares."""
        return sorted(rows, key=by[self.key], reverse=self.descending) if self.key else list(rows)


def order(context: RequestContext, path: str, columns: Sequence[str], default: str = "") -> Order:
    """From a parameter such as sort=name or sort=-balance. `columns`: with a minus where the largest stand first.
    `default`: the column that the list is ordered by where nothing is said."""
    typed, kept = context.query.get("sort", ""), filters(context)
    if typed.removeprefix("-") not in [name.removeprefix("-") for name in columns]:
        typed = ""
    now = typed or default
    turned = {name.removeprefix("-"): _turned(name, now) for name in columns}
    links = {key: address(path, kept | {"sort": "" if sort == default else sort}) for key, sort in turned.items()}
    return Order(now.removeprefix("-"), now.startswith("-"), links, typed)


def _turned(column: str, now: str) -> str:
    """The order after a click on a column's name."""
    if now.removeprefix("-") != column.removeprefix("-"):
        return column
    return now.removeprefix("-") if now.startswith("-") else f"-{now}"


def list_pager(
    context: RequestContext,
    path: str,
    following: int | None,
    count: int,
    word: str,
    *,
    oldest_first: bool = False,
    total: int | None = None,
) -> Pager:
    """Of a list that goes through time. A page that came out short says how far it looked. `total`: COUNTED at most."""
    short = following is not None and count < PAGE_SIZE
    text = (
        f"Looked {'on' if oldest_first else 'back'} to {dates.minute(identity.created_at(following or 0))}"
        if short
        else ""
    )
    return pager(context, path, following, text, shown=count, word=word, total=total, most=COUNTED)


def faults(query: Mapping[str, str], **words: Sequence[str]) -> dict[str, str]:
    """What is wrong with filters of a list, by their names: a day that is none, a first day after the last, or a word
    that is none of these."""
    found = {name: "a day such as 2026-11-20" for name in ("from", "to") if query.get(name) and not day(query, name)}
    found |= {name: "one of the list" for name, known in words.items() if query.get(name) and query[name] not in known}
    told = {name: f"“{query[name][:40]}” is not {wanted}" for name, wanted in found.items()}
    first, last = day(query, "from"), day(query, "to", after=True)
    if first and last and first >= last:
        told["from"] = "From is after To: the first day must not be after the last"
    return told


async def record_export(context: RequestContext, action: str, tenant_id: int | None, names: Sequence[str]) -> None:
    """Who exports a file, and with which filters, is in the audit log. A dealer that there is not is among the filters
    alone."""
    of_dealer = tenant_id if tenant_id and tenant_id > 0 else None
    used = {name: value for name in names if (value := text(context.query, name))}
    await context.parts.reads.primary.run(
        lambda connection: audit_log.record_act(connection, context.author, action, of_dealer, used)
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
