"""Why was a call refused? What the service received and signed, and where that is not what the dealer signed."""

from typing import NamedTuple

import msgspec

from dealer_server.console.shared import params
from dealer_server.console.shared.api_log import subjects
from dealer_server.console.shared.api_log.curl import call_curl
from dealer_server.console.shared.api_log.words import CHECKS, Log, meaning, operation, place
from dealer_server.console.shared.rendering import indented
from dealer_server.console.shared.request_context import Html, NotFound, RequestContext
from dealer_server.db.sealing import credential_context
from dealer_server.rules.access import call_subject, signature_diagnosis
from dealer_server.store.console import api_log as console_api_log
from dealer_server.store.console.api_log import UNSIGNED, RefusedCall
from dealer_server.store.tenants import tenant

_SIGNED = ("rt-timestamp", "rt-requestid", "rt-accesscode")
_CONTEXT_LENGTH = 24


class StringToSign(NamedTuple):
    """Its parts; a header that did not come is empty. `cut`: the body is longer than what was kept of it."""

    timestamp: str
    request_id: str
    access_code: str
    body: str
    cut: bool

    @property
    def whole(self) -> str:
        return f"{self.timestamp}{self.request_id}{self.access_code}{self.body}"


class Difference(NamedTuple):
    """The first character that differs in two strings, counted from 0, and what stands there in each. `same` is what
    comes before."""

    at: int
    same: str
    ours: str
    theirs: str
    ours_length: int
    theirs_length: int


async def show_call(context: RequestContext, log: Log) -> Html:
    return await _call(context, log, await _load(context, log))


async def compare(context: RequestContext, log: Log) -> Html:
    """Shows where the dealer's own string to sign differs from the one here."""
    call = await _load(context, log)
    ours, theirs = string_to_sign(call).whole, context.form.get("theirs", "")
    if "\r\n" not in ours:  # browsers send every end of line so
        theirs = theirs.replace("\r\n", "\n")
    return await _call(context, log, call, theirs, difference(ours, theirs))


async def _load(context: RequestContext, log: Log) -> RefusedCall:
    """Raises NotFound."""
    number = params.path_number(context, "number")
    async with context.parts.database.connection() as connection:
        call = await console_api_log.find(connection, log.tenant_id, number)
    if call is None:
        raise NotFound
    return call


async def _call(
    context: RequestContext, log: Log, call: RefusedCall, theirs: str = "", parting: Difference | None = None
) -> Html:
    names = [name for name, _ in CHECKS]
    named = (call.path, call_subject.of_body(call.body_head or b""))
    async with context.parts.database.connection() as connection:
        [about] = await subjects.of_calls(connection, log.tenant_id, [named])
    signed = string_to_sign(call)
    return Html(
        log=log,
        call=call,
        number=context.path["number"],
        headers=_headers(call),
        answer=_answer(call),
        signed=signed,
        unsigned=call.failed in UNSIGNED,
        about=about,
        body=_pretty(signed.body),
        curl=_curl(context, call, signed),
        operation=operation(call.path),
        checks=CHECKS,
        meaning=meaning(call.code),
        place=place(call.path),
        failed_at=names.index(call.failed) if call.failed in names else len(names),
        mistake=await _mistake(context, call),
        theirs=theirs,
        parting=parting,
    )


def _pretty(body: str) -> str:
    """As it came where it is no JSON, or is nested too deeply."""
    try:
        return indented(body.encode())
    except (ValueError, RecursionError):
        return body


def _curl(context: RequestContext, call: RefusedCall, signed: StringToSign) -> str:
    """What makes the call again; "" where its body is not known whole, or it was no POST of a path of ours."""
    if signed.cut or call.body_head is None or call.method != "POST" or not operation(call.path):
        return ""
    return call_curl(f"{context.parts.settings.base_url}{call.path}", call.app_key, signed.body)


async def _mistake(context: RequestContext, call: RefusedCall) -> str:
    """What the dealer did wrong where the signature does not match; "" where that is unknown."""
    headers = dict(reversed(_headers(call)))
    signature, body = headers.get("x-signature") or headers.get("rt-signature"), call.body_head
    if call.failed not in ("signature", "header form") or signature is None or body is None:
        return ""
    if len(body) != call.body_bytes:
        return ""
    async with context.parts.database.connection() as connection:
        access = await tenant.load_access(connection, call.app_key)
    if access is None or access.tenant_id != call.tenant_id:
        return ""
    timestamp, request_id, access_code = (headers.get(name, "").encode() for name in _SIGNED)
    signed = signature_diagnosis.Call(timestamp, request_id, access_code, body, signature.encode())
    secret, previous = _secrets(context, access)
    return signature_diagnosis.explain(signed, secret, previous)


def _secrets(context: RequestContext, access: tenant.Access) -> tuple[bytes, bytes | None]:
    """The secret in force, and the one before it."""
    keys, owner = context.parts.master_keys, (access.tenant_id, access.app_key)
    secret = keys.open(access.sealed_secret, credential_context(*owner, access.secret_version))
    if access.previous_secret is None:
        return secret, None
    return secret, keys.open(access.previous_secret, credential_context(*owner, access.secret_version - 1))


def string_to_sign(call: RefusedCall) -> StringToSign:
    """RT-Timestamp + RT-RequestID + RT-AccessCode + body, as they came."""
    headers = dict(reversed(_headers(call)))
    head = call.body_head or b""
    body = head.decode("utf-8", "backslashreplace")
    timestamp, request_id, access_code = (headers.get(name, "") for name in _SIGNED)
    return StringToSign(timestamp, request_id, access_code, body, (call.body_bytes or 0) > len(head))


def difference(ours: str, theirs: str) -> Difference | None:
    """None where they are the same."""
    if ours == theirs:
        return None
    common = range(min(len(ours), len(theirs)))
    at = next((index for index in common if ours[index] != theirs[index]), len(common))
    shown = slice(at, at + _CONTEXT_LENGTH)
    return Difference(at, ours[max(at - _CONTEXT_LENGTH, 0) : at], ours[shown], theirs[shown], len(ours), len(theirs))


def _headers(call: RefusedCall) -> list[tuple[str, str]]:
    return msgspec.json.decode(call.headers, type=list[tuple[str, str]])


def _answer(call: RefusedCall) -> str:
    """The response body, indented."""
    data = call.data.encode()
    try:
        envelope = {"code": call.code, "message": call.message, "data": msgspec.Raw(data)}
        return msgspec.json.format(msgspec.json.encode(envelope), indent=2).decode()
    except msgspec.MsgspecError:  # data was too long to be kept whole
        return f"{call.code} {call.message}\n{call.data}"
