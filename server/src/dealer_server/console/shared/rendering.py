"""How do pages look? Templates with everything escaped, and the files they link to."""

import asyncio
import functools
import gzip
import hashlib
import html
import json
import mimetypes
import os
import re
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from dealer_server.console.shared import words
from dealer_server.rules import axis, dates
from dealer_server.rules.catalogue.package import GB, KB, MB, TB
from dealer_server.rules.incidents import health
from dealer_server.rules.incidents.refused import refused
from dealer_server.rules.money import money, percent
from dealer_server.rules.notices.notice import is_mail_address
from dealer_server.rules.orders import identity

HERE = Path(__file__).parent.parent
STATIC = "/console/static/"
SHEET = "console.css"


def indented(body: bytes) -> str:
    """A JSON body as people read it; "" where there is none. Half a surrogate pair, which is no character, stays
    escaped. Raises ValueError, RecursionError."""
    if not body:
        return ""
    text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def hanging(text: str) -> list[tuple[int, str]]:
    """Lines of an indented JSON text: how many steps of two spaces each stands in, and what it says."""
    return [((len(line) - len(line.lstrip(" "))) // 2, line.lstrip(" ")) for line in text.splitlines()]


def response_lines(status: int, fields: str | None) -> list[tuple[str, str]]:
    """What was answered, as names and values: 503 Service Unavailable, and the header, kept one field a line."""
    phrase = HTTPStatus(status).phrase if status in {*HTTPStatus} else ""
    lines = [line.partition(": ") for line in (fields or "").splitlines()]
    return [("Status", f"{status} {phrase}".strip()), *((name, value) for name, _, value in lines)]


def milliseconds(number: int) -> str:
    """How long something took: 1,234 ms."""
    return f"{number:,} ms" if number else "under 1 ms"


def one_currency(rows: Iterable[Any]) -> str:
    """That of all these rows; "" where there are several."""
    found = {row.currency for row in rows}
    return found.pop() if len(found) == 1 else ""


def many(count: int, word: str) -> str:
    """1 order, 1,234 orders, 2 entries."""
    if count != 1:
        word = f"{word[:-1]}ies" if word.endswith("y") and word[-2] not in "aeiou" else f"{word}s"
    return f"{count:,} {word}"


def data_amount(count: int) -> str:
    """1.25 GB, 12.5 GB, 512 MB, 0. Units are powers of 1024, as those of packages; 1023 MB are 1 GB."""
    for size, unit in ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "KB")):
        if count >= size * 1000 // 1024:
            digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
            amount = f"{count / size:.{digits}f}"
            return (amount.rstrip("0").rstrip(".") if digits else amount) + f" {unit}"
    return f"{count} B" if count else "0"


def data_of(used: int, total: int) -> str:
    """1.25 GB of 3 GB, 512 MB of 1 GB, 0 GB of 1 GB."""
    of = data_amount(total)
    _, _, unit = of.partition(" ")
    return f"{data_amount(used) if used else f'0 {unit}'.strip()} of {of}"


def marked(text: str, asked: str) -> Markup:
    """A text in which what was asked for is marked, and its words of two characters and more."""
    whole = asked.strip()
    words = sorted({word for word in (whole, *whole.split()) if len(word) > 1}, key=len, reverse=True)
    if not words:
        return escape(text)
    parts = re.split(f"({'|'.join(map(re.escape, words))})", text, flags=re.IGNORECASE)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def time_left(end: datetime, now: datetime) -> str:
    """12 days left, which the last one is part of; 5 hours left, 1 min left."""
    minutes = max(0, int((end - now).total_seconds() // 60))
    if minutes >= 2 * 24 * 60:
        return f"{-(-minutes // (24 * 60))} days left"
    return f"{many(minutes // 60, 'hour')} left" if minutes >= 120 else f"{minutes} min left"


def polyline(values: Sequence[float]) -> str:
    """Points of a line in a box of 100 by 24, y from 22 down to 2."""
    if not values:
        return ""
    low, high = min(0, *values), max(values)
    across = 100 / max(1, len(values) - 1)
    return " ".join(
        f"{at * across:.1f},{22 - 20 * (value - low) / ((high - low) or 1):.1f}" for at, value in enumerate(values)
    )


def without(address: str, names: str) -> str:
    """The address of a list without these parameters, at its first page."""
    path, _, query = address.partition("?")
    gone = {*names.split(), "before", "trail"}
    kept = urlencode([(name, value) for name, value in parse_qsl(query) if name not in gone])
    return f"{path}?{kept}" if kept else path


_LINK = Markup('<a href="/console/{0}/{1}">{2}</a>')
_size = re.compile(r"(?<= )[0-9].*")
_unit = re.compile(r"(?<=[0-9]) (?=(?:[A-Z]{3,4}|ms|s)\b|%)")
_profile_id = re.compile(r"\b([0-9]{12,16})\b")
_number = re.compile(r"\b([DR][0-9]{18})\b")


def unbroken(text: str) -> str:
    """A text in which no number is broken before its currency or unit."""
    return _unit.sub("\N{NO-BREAK SPACE}", text)


def size_unbroken(name: str) -> str:
    """The name of a package that is broken before its size alone: United Arab Emirates, 1 GB 7 days."""
    return _size.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), name)


def linked(text: str, esims: Mapping[str, str] = {}) -> Markup:
    """A text for people, escaped, in which numbers of orders and refunds are links; of `esims` too."""
    parts = _number.split(text)  # every second one is a number
    return Markup("").join(
        _LINK.format("orders" if part[0] == "D" else "refunds", part, part)
        if at % 2
        else linked_esims(part, esims)
        if esims
        else part
        for at, part in enumerate(parts)
    )


def linked_esims(text: str, esims: Mapping[str, str] = {}) -> Markup:
    """A text for people, escaped, in which profileIds are links. `esims`: what they are called, by their profileIds."""
    parts = _profile_id.split(text)
    return Markup("").join(
        _LINK.format("profiles", part, esims.get(part, part)) if at % 2 else part for at, part in enumerate(parts)
    )


def as_json(value: object) -> str:
    """For an attribute; the template escapes it."""
    return json.dumps(value, separators=(",", ":"), default=str)


@functools.cache
def drawn(name: str) -> Markup:
    """An icon, inline. Raises FileNotFoundError: names are those of static/vendor/icons."""
    svg = (HERE / "static/vendor/icons" / f"{Path(name).name}.svg").read_text()
    return Markup(svg)  # noqa: S704 (our own file)


class Asset(NamedTuple):
    body: bytes
    text: bool
    media_type: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """Every file below static/ by its path there."""
    folder = HERE / "static"
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    found = {file.relative_to(folder).as_posix(): read_asset(file) for file in files}
    return {path: _linked(asset, found) if path == SHEET else asset for path, asset in found.items()}


def _linked(sheet: Asset, found: Mapping[str, Asset]) -> Asset:
    """Our style sheet names fonts by their hashed names too."""
    body = sheet.body
    for path, asset in found.items():
        if path.endswith(".woff2"):
            body = body.replace(f'"{path}"'.encode(), f'"{hashed(path, asset.body)}"'.encode())
    return sheet._replace(body=body)


@functools.cache
def names() -> Mapping[str, str]:
    """The name of every file below static/ with a hash of what is in it, such as console.0123456789ab.css: browsers
    keep it for ever."""
    return {path: hashed(path, asset.body) for path, asset in assets().items()}


@functools.cache
def paths() -> Mapping[str, str]:
    """The file of each such name."""
    return {name: path for path, name in names().items()}


def address(path: str) -> str:
    return f"{STATIC}{names()[path]}"


def flag(code: str) -> str:
    """The address of a country's flag; "" of a region, which has none."""
    path = f"vendor/flags/{code}.svg"
    return address(path) if path in names() else ""


_ADDRESSES = {"asset": address, "flag": flag}


def hashed(path: str, body: bytes) -> str:
    stem, point, suffix = path.rpartition(".")
    return f"{stem}.{hashlib.sha256(body).hexdigest()[:12]}{point}{suffix}"


def read_asset(file: Path) -> Asset:
    body, kind = file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if file.suffix == ".woff2":
        return Asset(body, False, "font/woff2")
    text = kind.startswith("text/") or kind in ("image/svg+xml", "application/json") or file.suffix == ".js"
    return Asset(body, text, f"{kind}; charset=utf-8" if text else kind)


@functools.cache
def zipped(path: str) -> bytes:
    """A text of ours, for browsers that take it so."""
    return gzip.compress(assets()[path].body, mtime=0)


def form_nonce() -> str:
    """A value of each form's own: a form acts once, however often it is sent (console/endpoint.py)."""
    return secrets.token_hex(16)


class CompiledTemplates(FileSystemBytecodeCache):
    """Compiled templates, kept where Python keeps compiled modules: compiling all of them takes a second."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):  # a full disk
            super().dump_bytecode(bucket)


def _compiled() -> CompiledTemplates | None:
    """None where that folder cannot be written, or nothing is to be."""
    folder = HERE / "__pycache__" / "templates"
    if sys.dont_write_bytecode:
        return None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return CompiledTemplates(str(folder)) if os.access(folder, os.W_OK) else None


@functools.cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        bytecode_cache=_compiled(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    _add_names(made)
    return made


_DATES = {
    "exact": dates.exact,
    "minute": dates.minute,
    "short": dates.short,
    "listed": dates.listed,
    "day": dates.day,
    "short_day": dates.short_day,
    "age": dates.age,
    "lasted": dates.lasted,
}


_NUMBERS = {
    "own_number": identity.own_reference,
    "order_no": identity.order_no,
    "item_no": identity.item_no,
    "topup_no": identity.topup_no,
    "refund_no": identity.refund_no,
    "sms_no": identity.sms_no,
    "created_at": identity.created_at,
}
_HEALTH = {
    "healthy_percent": health.HEALTHY_PERCENT,
    "is_degraded": health.is_degraded,
    "share_of": health.share_of,
    "least_failed": health.LEAST_FAILED,
    "share_text": health.share_text,
}


def _add_names(made: Environment) -> None:
    """What templates call."""
    made.filters |= {
        "tone": words.tone,
        "word": words.text,
        "label": words.label,
        "grouped": money.grouped,
        "marked": marked,
        "percent": percent.shown,
        "share": percent.one_decimal,
        "percent_number": percent.number,
        "many": many,
        "refused": refused,
        "content": content,
        "one_currency": one_currency,
        "hanging": hanging,
        "response_lines": response_lines,
        "milliseconds": milliseconds,
        "data": data_amount,
        "time_left": time_left,
        "actor": words.actor,
        "role": words.role,
        "polyline": polyline,
        "json": as_json,
        "without": without,
        "linked": linked,
        "linked_esims": linked_esims,
        "unbroken": unbroken,
        "size_unbroken": size_unbroken,
        "is_mail_address": is_mail_address,
        **_DATES,
    }
    made.globals |= {
        "drawn": drawn,
        "data_of": data_of,
        **_ADDRESSES,
        "once": form_nonce,
        "major": money.text,
        "axis_of": axis.axis,
        "scale_to": axis.Axis,
        **_NUMBERS,
        "choices": words.choices,
        "item_state": words.item_state,
        "order_state": words.order_state,
        "esim_state": words.esim_state,
        **_HEALTH,
    }


def content(text: str) -> Markup:
    """Text between tags, never in an attribute: its quotation marks stay as they are, of which a JSON body has many."""
    return Markup(html.escape(text, quote=False))  # noqa: S704 (escaped)


async def warm() -> None:
    """Reads and compiles all that pages are made of, so that the first visitor does not wait for it. One template after
    the other: a process that is told to stop meanwhile waits for one of them."""
    await asyncio.to_thread(names)
    for name in environment().list_templates():
        await asyncio.to_thread(environment().get_template, name)


def render(template: str, fields: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(fields)
