"""Why was my call refused? A dealer's last refused calls, and for each what the service received and signed.

Dealers see their own; operators who may see activation codes see any dealer's, since bodies stand in them too.
"""

from typing import NamedTuple

import msgspec

from dealer_server.console.dealer.permissions import PAGE, SECRETS
from dealer_server.console.operator.permissions import CODES
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import NotFound, Page, RequestContext, Route
from dealer_server.db.sealing import credential_context
from dealer_server.rules.access import signature_diagnosis
from dealer_server.store.console import api_log as console_api_log
from dealer_server.store.console import dealers
from dealer_server.store.console.api_log import KEPT_SIGNED, KEPT_UNSIGNED, RefusedCall
from dealer_server.store.tenants import tenant

# The order of decisions 1. What a call failed at says that it has passed all before.
CHECKS = (
    ("path", "Path"),
    ("query string", "No query string"),
    ("method", "Method POST"),
    ("size", "Size of the body"),
    ("content type", "Content-Type"),
    ("failed authentications", "Failed authentications of the address"),
    ("headers", "Headers present"),
    ("header form", "Form of the headers"),
    ("active", "Dealer and credential active"),
    ("address", "IP allowlist"),
    ("timestamp", "RT-Timestamp within 5 minutes"),
    ("signature", "X-Signature"),
    ("request id", "RT-RequestID used once"),
    ("QPS", "Calls a second"),
    ("JSON", "JSON"),
    ("parameters", "Parameters"),
    ("operation", "The operation itself"),
)
_SIGNED = ("rt-timestamp", "rt-requestid", "rt-accesscode")
_ROUNDABOUT = 24


class Log(NamedTuple):
    """Whose log, and where its pages are. `dealer` is its name where an operator looks."""

    tenant_id: int
    path: str
    dealer: str = ""


class Signed(NamedTuple):
    """The string that is to be signed, in its parts; a header that did not come is empty. `cut`: the body is longer."""

    timestamp: str
    request_id: str
    access_code: str
    body: str
    cut: bool

    @property
    def whole(self) -> str:
        return f"{self.timestamp}{self.request_id}{self.access_code}{self.body}"


class Difference(NamedTuple):
    """Where two strings part: the first character that differs, counted from 0, and what stands there in each."""

    at: int
    same: str
    ours: str
    theirs: str
    ours_length: int
    theirs_length: int


async def api_log(context: RequestContext) -> Page:
    log, code = await _log(context), params.text(context.query, "code")
    async with context.parts.database.connection() as connection:
        codes = await console_api_log.codes(connection, log.tenant_id)
        before = params.number(context.query, "before")
        found = await console_api_log.page(connection, log.tenant_id, code, before, PAGE + 1)
        written, dropped = await console_api_log.counts(connection, log.tenant_id)
    following = found[PAGE - 1].number if len(found) > PAGE else None
    pages = params.pager(context, log.path, following)
    fields = {"calls": found[:PAGE], "codes": codes, "code": code, "pages": pages, "written": written}
    kept = {"kept_unsigned": KEPT_UNSIGNED, "kept_signed": KEPT_SIGNED}
    return Page("api_log.html", {**fields, **kept, "log": log, "dropped": dropped})


async def _log(context: RequestContext) -> Log:
    """Raises NotHere."""
    if context.user.tenant_id is not None:
        return Log(context.user.tenant_id, "/console/api-log")
    async with context.parts.database.connection() as connection:
        found = await dealers.dealer(connection, params.named(context, "tenant_id"))
    if found is None:
        raise NotFound
    return Log(found.tenant_id, f"/console/dealers/{found.tenant_id}/api-log", found.name)


async def one(context: RequestContext) -> Page:
    log = await _log(context)
    return await _page(context, log, await _load(context, log), "", None)


async def compare(context: RequestContext) -> Page:
    """Where the dealer's own string to sign parts from the one here."""
    log = await _log(context)
    call = await _load(context, log)
    ours, theirs = signed(call).whole, context.form.get("theirs", "")
    if "\r\n" not in ours:  # browsers send every end of line so
        theirs = theirs.replace("\r\n", "\n")
    return await _page(context, log, call, theirs, difference(ours, theirs))


async def _load(context: RequestContext, log: Log) -> RefusedCall:
    """Raises NotHere."""
    async with context.parts.database.connection() as connection:
        found = await console_api_log.find(connection, log.tenant_id, params.named(context, "number"))
    if found is None:
        raise NotFound
    return found


async def _page(context: RequestContext, log: Log, call: RefusedCall, theirs: str, parting: Difference | None) -> Page:
    places = [word for word, _ in CHECKS]
    fields = {
        "call": call,
        "number": context.path["number"],
        "headers": _headers(call),
        "answer": _answer(call),
        "signed": signed(call),
        "checks": CHECKS,
        "failed_at": places.index(call.failed) if call.failed in places else len(places),
        "mistake": await _mistake(context, call),
        "theirs": theirs,
        "parting": parting,
        "log": log,
    }
    return Page("refused.html", fields)


async def _mistake(context: RequestContext, call: RefusedCall) -> str:
    """What was done otherwise where the signature does not fit; "" where that cannot be said."""
    came = dict(reversed(_headers(call)))
    signature, body = came.get("x-signature") or came.get("rt-signature"), call.body_head
    if call.failed not in ("signature", "header form") or signature is None or body is None:
        return ""
    if len(body) != call.body_bytes:
        return ""
    async with context.parts.database.connection() as connection:
        access = await tenant.load_access(connection, call.app_key)
    if access is None or access.tenant_id != call.tenant_id:
        return ""
    parts = [came.get(name, "").encode() for name in _SIGNED]
    secret, previous = _secrets(context, access)
    return signature_diagnosis.explain(
        signature_diagnosis.Call(parts[0], parts[1], parts[2], body, signature.encode()), secret, previous
    )


def _secrets(context: RequestContext, access: tenant.Access) -> tuple[bytes, bytes | None]:
    """The secret in force, and the one before it."""
    keys, about = context.parts.master_keys, (access.tenant_id, access.app_key)
    secret = keys.open(access.sealed_secret, credential_context(*about, access.secret_version))
    if access.previous_secret is None:
        return secret, None
    return secret, keys.open(access.previous_secret, credential_context(*about, access.secret_version - 1))


def signed(call: RefusedCall) -> Signed:
    """RT-Timestamp + RT-RequestID + RT-AccessCode + body, as they came."""
    came = dict(reversed(_headers(call)))
    head = call.body_head or b""
    body = head.decode("utf-8", "backslashreplace")
    timestamp, request_id, access_code = (came.get(name, "") for name in _SIGNED)
    return Signed(timestamp, request_id, access_code, body, (call.body_bytes or 0) > len(head))


def difference(ours: str, theirs: str) -> Difference | None:
    """None where they are the same."""
    if ours == theirs:
        return None
    lengths = range(min(len(ours), len(theirs)))
    at = next((place for place in lengths if ours[place] != theirs[place]), len(lengths))
    shown = slice(at, at + _ROUNDABOUT)
    return Difference(at, ours[max(at - _ROUNDABOUT, 0) : at], ours[shown], theirs[shown], len(ours), len(theirs))


def _headers(call: RefusedCall) -> list[tuple[str, str]]:
    return msgspec.json.decode(call.headers, type=list[tuple[str, str]])


def _answer(call: RefusedCall) -> str:
    """What was answered, laid out."""
    data = call.data.encode()
    try:
        envelope = {"code": call.code, "message": call.message, "data": msgspec.Raw(data)}
        return msgspec.json.format(msgspec.json.encode(envelope), indent=2).decode()
    except msgspec.MsgspecError:  # data was too long to be kept whole
        return f"{call.code} {call.message}\n{call.data}"


_OF_ANY = "/console/dealers/{tenant_id}/api-log"
ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/api-log", SECRETS, api_log, "API log"),
    Route("GET", "/console/api-log/{number}", SECRETS, one),
    Route("POST", "/console/api-log/{number}/compare", SECRETS, compare),
    Route("GET", _OF_ANY, CODES, api_log),
    Route("GET", f"{_OF_ANY}/{{number}}", CODES, one),
    Route("POST", f"{_OF_ANY}/{{number}}/compare", CODES, compare),
)
