"""What becomes of a form that was not carried out, as its session had ended, somebody else had changed the same fields
or it was refused? It is kept for the user who had opened it, through the sign-in, and its page shows it once more with
what was entered. It is never carried out by itself.

Every form names its user, sealed. What was entered goes with the page of the sign-in, sealed; once the same user has
signed in, it is kept for a while in the database. Files, passwords and other secrets are not kept.
"""

import base64
import binascii
import re
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from dealer_server.console.auth.forms import Form
from dealer_server.console.auth.places import HOME, local
from dealer_server.db.database import Database
from dealer_server.db.sealing import CannotOpen, DataKeys
from dealer_server.operations.errors import FieldFaults, OperatorError
from dealer_server.operations.versions import ChangedMeanwhile, Field
from dealer_server.rules.refusal import Refusal
from dealer_server.store.console import kept

SHOWN_FOR = timedelta(minutes=15)
FORM_LIFETIME = timedelta(hours=24)
MAX_BYTES = 8 * 1024
MAX_CHANGED_BYTES = 256 * 1024
SHOWN_AGAIN = "Your session had ended, so nothing was sent. Below is what you entered: check it and send it again."
CHOOSE_AGAIN = "Choose the file again: it was not kept."
_WHO, _FORM = b"console form of", b"console form kept"
_OURS = {"csrf", "once", "who", "version", "seen", "next", "kept"}
_is_secret = re.compile(r"password|secret|token|code$|^sure|^old$|^new$|^again$|key$", re.IGNORECASE).search


class Kept(msgspec.Struct, frozen=True):
    """`action`: where the form goes; `page`: where it stands, with its query; `fields`: what was entered. `changed`:
    the fields that somebody else has changed; `version`: of them as they are now. `refused`: why; `faults`: what
    of each field that is to blame. `exact`: the form of no other query of this page, which says itself why where
    `refused` is ""."""

    user_id: int
    action: str
    page: str
    fields: dict[str, str]
    at: datetime
    changed: list[Field] = []
    version: str = ""
    refused: str = ""
    faults: dict[str, str] = {}
    exact: bool = False


def who(keys: DataKeys, user_id: int) -> str:
    """Names the user of a page's forms, to us alone."""
    return _text(keys.seal(str(user_id).encode(), _WHO))


def of_request(keys: DataKeys, request: Request, form: Form, now: datetime) -> Kept | None:
    """What was entered; None for a form that none of our pages sent, or that says too much."""
    try:
        user_id = int(keys.open(_bytes(form.texts.get("who", "")), _WHO))
    except (CannotOpen, ValueError, IndexError):
        return None
    fields = _kept_fields(form, MAX_BYTES)
    return None if fields is None else Kept(user_id, request.url.path, _page(request), fields, now)


def of_conflict(user_id: int, action: str, page: str, form: Form, why: ChangedMeanwhile, now: datetime) -> Kept | None:
    """What was entered and what is stored instead; None for a form that says too much."""
    fields = _kept_fields(form, MAX_CHANGED_BYTES)
    return None if fields is None else Kept(user_id, action, page, fields, now, why.fields, why.version)


def of_refusal(
    user_id: int, action: str, page: str, form: Form, why: OperatorError | Refusal, now: datetime, *, exact: bool
) -> Kept | None:
    """What was entered and why it was refused; None for a form that says too much."""
    fields, faults = _kept_fields(form, MAX_BYTES), _faults(why, form)
    return (
        None
        if fields is None
        else Kept(user_id, action, page, fields, now, refused=str(why), faults=faults, exact=exact)
    )


def _faults(why: OperatorError | Refusal, form: Form) -> dict[str, str]:
    """By field. Where there are any, also of the files, which are to be chosen again."""
    if not isinstance(why, OperatorError) or not why.field:
        return {}
    found = why.faults if isinstance(why, FieldFaults) else {why.field: str(why)}
    return {name: CHOOSE_AGAIN for name, content in form.files.items() if content} | found


def _kept_fields(form: Form, most: int) -> dict[str, str] | None:
    fields = {name: text for name, text in form.texts.items() if name not in _OURS and not _is_secret(name)}
    return fields if sum(len(name) + len(text) for name, text in fields.items()) <= most else None


def sealed(keys: DataKeys, form: Kept) -> str:
    """For a hidden field of the sign-in."""
    return _text(keys.seal(msgspec.json.encode(form), _FORM))


def opened(keys: DataKeys, text: str, now: datetime) -> Kept | None:
    """None for what we did not seal, or long ago."""
    try:
        form = msgspec.json.decode(keys.open(_bytes(text), _FORM), type=Kept)
    except (CannotOpen, ValueError, IndexError, msgspec.DecodeError):
        return None
    return form if now - form.at < FORM_LIFETIME else None


async def keep(database: Database, keys: DataKeys, form: Kept, now: datetime) -> None:
    """Until its page has shown it again, for a quarter of an hour."""
    async with database.transaction() as connection:
        content = keys.seal(msgspec.json.encode(form), _FORM)
        await kept.keep_form(connection, form.user_id, _path(form.page), content, now, now + SHOWN_FOR)


async def take(database: Database, keys: DataKeys, user_id: int, page: str, now: datetime) -> Kept | None:
    """The form to be shown again on this page. Another look at the page does not find it."""
    async with database.connection() as connection:
        content = await kept.take_form(connection, user_id, _path(page), now)
    if content is None:
        return None
    try:
        form = msgspec.json.decode(keys.open(content, _FORM), type=Kept)
    except (CannotOpen, msgspec.DecodeError):
        return None
    return None if form.exact and form.page != page else form


def _path(page: str) -> str:
    return page.partition("?")[0]


def _page(request: Request) -> str:
    """The page that the form was on, as far as the browser says."""
    try:
        referer = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return HOME
    path = referer.path or request.url.path
    return local(f"{path}?{referer.query}" if referer.query else path)


def _text(sealed_bytes: bytes) -> str:
    return base64.urlsafe_b64encode(sealed_bytes).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.encode())
    except (binascii.Error, UnicodeEncodeError):
        return b""
