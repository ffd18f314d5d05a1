"""Why was a call refused? A dealer's last refused calls, and for each what the service received and signed. Beside them
stands a sample of those that succeeded.

dealer/api_log.py and operator/api_log.py declare the pages.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dealer_server.console.shared import params
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Html, NotFound, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.db.sealing import credential_context
from dealer_server.rules.access import signature_diagnosis
from dealer_server.store.console import api_log as console_api_log
from dealer_server.store.console.api_log import KEPT, CallFilter, RefusedCall
from dealer_server.store.tenants import served_call, tenant
from dealer_server.store.tenants.served_call import ServedCallRow

# In the order in which a call is checked: it has passed all before the one it failed at.
CHECKS = (
    ("path", "Path"),
    ("query string", "No query string"),
    ("method", "Method POST"),
    ("size", "Body size"),
    ("content type", "Content-Type"),
    ("failed authentications", "Address not locked out"),
    ("headers", "Headers present"),
    ("header form", "Header format"),
    ("active", "Dealer and credential active"),
    ("address", "IP allowlist"),
    ("timestamp", "RT-Timestamp within 5 minutes"),
    ("signature", "X-Signature"),
    ("request id", "RT-RequestID used once"),
    ("QPS", "Rate limit"),
    ("JSON", "JSON"),
    ("parameters", "Parameters"),
    ("operation", "Operation"),
)
MEANINGS: Mapping[str, str] = {
    "000001": "Server error",
    "000101": "Header missing",
    "000102": "Header malformed",
    "000103": "Not a POST",
    "000104": "Body is not JSON",
    "000105": "Parameter missing",
    "000106": "Parameter empty",
    "000107": "Parameter too long",
    "000108": "Parameter invalid",
    "000109": "Content-Type wrong",
    "000110": "Body too large",
    "000111": "Parameter not accepted",
    "000112": "Path unknown",
    "101001": "Timestamp too far off",
    "101002": "Address not allowed",
    "101003": "Signature wrong",
    "101004": "RT-RequestID used before",
    "101005": "AppKey unknown",
    "101006": "Dealer or AppKey disabled",
    "101007": "Scope missing",
    "101013": "Too many calls",
    "900001": "Busy or in maintenance",
    "900002": "Supplier failed",
    "200002": "Status forbids it",
    "200003": "Nothing to refund",
    "200004": "Refund in progress",
    "200005": "Price differs",
    "200006": "Amount differs",
    "200007": "Balance too low",
    "200008": "Lines inconsistent",
    "200010": "No codes yet",
    "200011": "Out of stock",
    "200014": "Not on sale",
    "200015": "Currency differs",
    "200020": "Wallet frozen",
    "200021": "Too many top-ups waiting",
    "200022": "Not supported by the supplier",
    "310241": "Package unknown",
    "310272": "Order or delivery unknown",
    "310274": "Item not in the order",
    "310402": "transactionId used before",
    "310403": "Profile not in the item",
    "310404": "eSIM unknown",
    "310405": "Top-up unknown",
    "310501": "Callback URL refused",
}
"""What result codes mean, in a few words."""
API = "/open-api/v1"
"""What paths begin with."""
SLOW_MS = 1_000
"""Calls that took longer stand out."""
_SIGNED = ("rt-timestamp", "rt-requestid", "rt-accesscode")
_CONTEXT_LENGTH = 24


class Log(NamedTuple):
    """Whose log, and where its pages are. `dealer`: the dealer's name, for an operator."""

    tenant_id: int
    path: str
    dealer: str = ""


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


def meaning(code: str) -> str:
    """Signature wrong (101003)."""
    return f"{MEANINGS.get(code, 'Refused')} ({code})"


async def show_log(context: RequestContext, log: Log, **shown: Any) -> Html:
    """All calls that are kept, or those refused alone, for any or for one reason. `shown`: what else the template
    needs."""
    query = context.query
    filters = CallFilter(
        params.text(query, "code"),
        params.text(query, "path"),
        params.day(query, "from"),
        params.day(query, "to", after=True),
    )
    async with context.parts.database.connection() as connection:
        codes = await console_api_log.codes(connection, log.tenant_id)
        paths = await console_api_log.paths(connection, log.tenant_id)
        calls = await console_api_log.list_calls(
            connection, log.tenant_id, filters, params.number(query, "before"), PAGE_SIZE + 1
        )
        _, dropped = await console_api_log.counts(connection, log.tenant_id)
        served = await served_call.served(connection, log.tenant_id)
        every = query.get("result") != "refused" and filters.code is None
        others = await _succeeded(connection, log.tenant_id, filters) if every else ()
    following = calls[PAGE_SIZE - 1].number if len(calls) > PAGE_SIZE and not every else None
    listed = sorted([*calls, *others], key=lambda call: call.at, reverse=True)[:PAGE_SIZE]
    return Html(
        log=log,
        every=every,
        calls=listed,
        codes=[("", "Any reason"), *((word, f"{meaning(word)}, {many(count, 'call')}") for word, count in codes)],
        paths=_choices(await _paths(context, log, paths) if every else paths),
        meanings=MEANINGS,
        filters=filters,
        faults=params.faults(query),
        pages=params.pager(context, log.path, following, shown=len(listed), word="call"),
        dropped=dropped,
        kept=KEPT,
        refused=sum(count for _, count in codes),
        served=served,
        **shown,
    )


async def _paths(context: RequestContext, log: Log, refused: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """Of all calls that are kept, with how many there are of each."""
    async with context.parts.database.connection() as connection:
        found = Counter(dict(refused)) + Counter(dict(await served_call.paths(connection, log.tenant_id)))
    return found.most_common()


async def _succeeded(connection: Connection, tenant_id: int, wanted: CallFilter) -> Sequence[ServedCallRow]:
    return await served_call.list_calls(connection, tenant_id, wanted.path, None, PAGE_SIZE, wanted.start, wanted.end)


async def show_served(context: RequestContext, log: Log) -> Html:
    """A sample of the calls that succeeded."""
    chosen, before = params.text(context.query, "path"), params.number(context.query, "before")
    async with context.parts.database.connection() as connection:
        paths = await served_call.paths(connection, log.tenant_id)
        calls = await served_call.list_calls(connection, log.tenant_id, chosen, before, PAGE_SIZE + 1)
        served = await served_call.served(connection, log.tenant_id)
        codes = await console_api_log.codes(connection, log.tenant_id)
    following = calls[PAGE_SIZE - 1].number if len(calls) > PAGE_SIZE else None
    return Html(
        log=log,
        calls=calls[:PAGE_SIZE],
        paths=_choices(paths),
        chosen=chosen,
        served=served,
        refused=sum(count for _, count in codes),
        kept=served_call.KEPT,
        slow=SLOW_MS,
        pages=params.pager(context, f"{log.path}/served", following, shown=min(len(calls), PAGE_SIZE), word="call"),
    )


def _choices(paths: Sequence[tuple[str, int]]) -> list[tuple[str, str]]:
    named = ((path, f"{path.removeprefix(API)}, {many(count, 'call')}") for path, count in paths)
    return [("", "Any operation"), *named]


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
    return Html(
        log=log,
        call=call,
        number=context.path["number"],
        headers=_headers(call),
        answer=_answer(call),
        signed=string_to_sign(call),
        checks=CHECKS,
        meaning=meaning(call.code),
        place=call.path.removeprefix(API),
        failed_at=names.index(call.failed) if call.failed in names else len(names),
        mistake=await _mistake(context, call),
        theirs=theirs,
        parting=parting,
    )


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
