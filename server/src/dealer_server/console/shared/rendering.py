"""How do pages look? Templates with everything escaped, and the files they link to."""

import functools
import gzip
import hashlib
import json
import mimetypes
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dealer_server.rules.money import money
from dealer_server.rules.orders import identity

HERE = Path(__file__).parent.parent
STATIC = "/console/static/"
_TONES = {
    "good": "ACTIVE COMPLETED DELIVERED PAID UP SUCCESS REFUNDED APPROVED CREDITED ALLOCATED INSTALLED ENABLED STARTED"
    " HEALTHY BOUGHT DONE ON ON_SALE LISTED IN_USE ACTIVATED",
    "busy": "PENDING PROCESSING DELIVERING IN_FLIGHT QUEUED REFUNDING PARTIALLY_DELIVERED PARTIAL_DELIVERED WAITING"
    " RUNNING DUE CREATED NOT_STARTED REQUESTED ASKED SENT CALLING RELEASED PARTIALLY_REFUNDED PARTIAL_REFUNDED",
    "warning": "PAUSED SUSPENDED FROZEN PARKED UNKNOWN REVIEW DEGRADED PROBING LOW OVERDUE RETRY RETRYING IN_REVIEW",
    "bad": "FAILED REJECTED DISABLED GIVEN_UP DEAD DOWN REFUSED ERROR EXHAUSTED BROKEN",
}
TONE = {word: tone for tone, words in _TONES.items() for word in words.split()}


def tone(word: object) -> str:
    """The colour of a state: good, busy, warning, bad, or plain."""
    return TONE.get(str(word).upper().replace(" ", "_").replace("-", "_"), "plain")


def grouped(text: object) -> str:
    """1234.50 as 1,234.50."""
    sign, digits = ("−", str(text)[1:]) if str(text).startswith("-") else ("", str(text))
    whole, point, fraction = digits.partition(".")
    return f"{sign}{int(whole):,}{point}{fraction}" if whole.isascii() and whole.isdigit() else str(text)


def many(count: int, word: str) -> str:
    """1 order, 1,234 orders."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def polyline(values: Sequence[float]) -> str:
    """Points of a line in a box of 100 by 24, y from 22 down to 2."""
    if not values:
        return ""
    low, high = min(0, *values), max(values)
    across = 100 / max(1, len(values) - 1)
    return " ".join(
        f"{at * across:.1f},{22 - 20 * (value - low) / ((high - low) or 1):.1f}" for at, value in enumerate(values)
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
    return {file.relative_to(folder).as_posix(): _asset(file) for file in sorted(folder.rglob("*")) if file.is_file()}


@functools.cache
def version() -> str:
    """Changes with any of them, so that browsers keep them for ever."""
    digest = hashlib.sha256()
    for path, asset in assets().items():
        digest.update(path.encode() + asset.body)
    return digest.hexdigest()[:12]


def address(path: str) -> str:
    return f"{STATIC}{path}?v={version()}"


def _asset(file: Path) -> Asset:
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


def choices(label: str, values: Sequence[str]) -> list[tuple[str, str]]:
    """The options of a filter; `label` is the one that filters nothing."""
    return [("", label), *((value, value) for value in values)]


@functools.cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "tone": tone,
        "grouped": grouped,
        "many": many,
        "polyline": polyline,
        "json": as_json,
        "epochs": _epochs,
    }
    made.globals |= {
        "drawn": drawn,
        "asset": address,
        "once": form_nonce,
        "major": money.text,
        "order_no": identity.order_no,
        "topup_no": identity.topup_no,
        "refund_no": identity.refund_no,
        "sms_no": identity.sms_no,
        "created_at": identity.created_at,
        "choices": choices,
    }
    return made


def warm() -> None:
    """Reads and compiles all that pages are made of, so that the first visitor does not wait for it."""
    version()
    for name in environment().list_templates():
        environment().get_template(name)


def render(template: str, fields: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(fields)


def _epochs(times: Sequence[datetime]) -> list[int]:
    return [int(time.timestamp()) for time in times]
