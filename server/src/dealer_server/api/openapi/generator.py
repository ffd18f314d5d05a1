"""What does the OpenAPI document say? Made from the rows of `routes`, the structs of the contract and the refusals."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, get_args

import msgspec

from dealer_server.api.openapi import descriptions, examples
from dealer_server.api.replies import STATUS
from dealer_server.api.routes import Operation
from dealer_server.rules.orders.snapshot import Links
from esim_dealer.wire import calls, signing
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import SUCCESS, SUCCESS_MESSAGE, EventType

Json = dict[str, Any]

# What any call may be refused with, in the order of the checks (decisions 1).
COMMON = (
    "000112", "000103", "000110", "000109", "000101", "000102", "101005", "101006", "101002", "101001", "101003",
    "101004", "101013", "000104", "000105", "000106", "000107", "000108", "900001", "000001",
)  # fmt: skip

_STATUS: Mapping[str, int] = {**STATUS}
_SCHEMAS = "#/components/schemas/"
_MONEY = r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,4})?$"
_MONEY_SENT: Json = {"type": ["number", "string"], "pattern": _MONEY, "minimum": 0, "exclusiveMaximum": 10**12}
_MONEY_ANSWERED: Json = {"type": "string", "pattern": r"^-?(0|[1-9][0-9]*)(\.[0-9]{1,4})?$"}
_AMOUNTS = {"amount", "price", "retailPrice", "balance", "creditLimit", "availableBalance", "lowBalanceThreshold"}
# Calls that name one thing by one of several parameters: oneOf where they exclude each other, else anyOf.
_NAMED_BY: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "QueryOrder": ("anyOf", ("orderNo", "transactionId")),
    "RefundOrder": ("anyOf", ("orderNo", "transactionId")),
    "RefundProfile": ("anyOf", ("profileId", "iccid")),
    "VoidProfile": ("oneOf", ("profileId", "iccid")),
    "ProfileUsage": ("oneOf", ("profileId", "iccid")),
    "AdvanceProfile": ("oneOf", ("profileId", "iccid")),
    "QueryTopup": ("anyOf", ("topupNo", "transactionId")),
    "CancelTopup": ("anyOf", ("topupNo", "transactionId")),
}
_CITATION = re.compile(r"\s*\((?:specification|decisions)[^)]*\)")


class Incomplete(Exception):
    """An operation that the document cannot describe, and what it lacks."""


def require_complete(rows: Iterable[Operation]) -> None:
    """Call it at start, so that a missing example is seen then and not in an answer of /openapi.json.

    Raises Incomplete.
    """
    for row in rows:
        if lacking := [*_lacking_of_path(row.path), *(one for code in row.refusals for one in _lacking_of_code(code))]:
            raise Incomplete(f"operation {row.path} has no {', no '.join(lacking)}")


def _lacking_of_path(path: str) -> Iterable[str]:
    if path not in descriptions.OPERATIONS:
        yield "text in descriptions.OPERATIONS"
    if (tag := _tag(path)) not in descriptions.TAGS:
        yield f"text for its tag {tag} in descriptions.TAGS"
    yield from examples.lacking(path)


def _lacking_of_code(code: str) -> Iterable[str]:
    if code not in descriptions.CODES:
        yield f"text for {code} in descriptions.CODES"
    yield from examples.lacking_refusal(code)


def document(rows: Iterable[Operation], *, base_url: str, version: str) -> Json:
    """The OpenAPI 3.1 document of these operations, as served at `base_url`."""
    rows, links = tuple(rows), Links(base_url)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "eSIM Dealer Open API",
            "version": version,
            "summary": "Sell eSIM data packages: order from the BALANCE wallet, receive signed webhooks.",
            "description": descriptions.introduction(_worked_example(), _codes_table(rows)),
        },
        "servers": [{"url": base_url}],
        "tags": [{"name": name, "description": text} for name, text in descriptions.TAGS.items()],
        "paths": {f"{calls.PREFIX}{row.path}": {"post": _operation(row, links)} for row in rows},
        "webhooks": {event_type: {"post": _webhook(event_type, links)} for event_type in get_args(EventType)},
        "security": [{name: [] for name in _SECURITY}],
        "components": {
            "schemas": _schemas(rows),
            "headers": _HEADERS,
            "examples": {name: value for code in _codes(rows) for name, value in _refusal_examples(code).items()},
            "securitySchemes": _SECURITY,
        },
    }


# Operations


def _operation(row: Operation, links: Links) -> Json:
    name = row.path.removeprefix("/")
    return {
        "operationId": re.sub(r"/(.)", lambda found: found[1].upper(), name),
        "summary": row.summary,
        "description": descriptions.OPERATIONS[row.path],
        "tags": [_tag(row.path)],
        "requestBody": {
            "required": bool(_schema(row.takes).get("required")) or row.takes.__name__ in _NAMED_BY,
            "content": _content({"$ref": _SCHEMAS + row.takes.__name__}, {"call": _sent(examples.request(row.path))}),
        },
        "responses": _responses(row, links),
    }


def _tag(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


def _responses(row: Operation, links: Links) -> Json:
    """The answer, and the refusals this operation may give, grouped by HTTP status."""
    by_status: dict[int, list[str]] = {}
    for code in (*_common(row), *row.refusals):
        by_status.setdefault(_STATUS[code], []).append(code)
    return {"200": _success(row, links)} | {
        str(status): _refused(status, by_status[status], row) for status in sorted(by_status)
    }


def _common(row: Operation) -> Iterable[str]:
    """The codes of every call; a call without parameters has none that are missing, empty or too long."""
    without = () if _schema(row.takes)["properties"] else ("000105", "000106", "000107")
    return (code for code in COMMON if code not in without)


def _success(row: Operation, links: Links) -> Json:
    made = {name: msgspec.json.decode(data) for name, data in examples.answer(row.path, links).items()}
    return {
        "description": "Done. `data` holds the result.",
        "headers": _header_references(*_EVERY_ANSWER),
        "content": _content(
            {
                "type": "object",
                "required": ["code", "message", "data"],
                "properties": {
                    "code": {"const": SUCCESS},
                    "message": {"const": SUCCESS_MESSAGE},
                    "data": {"$ref": _SCHEMAS + row.answers.__name__},
                },
            },
            {name: {"code": SUCCESS, "message": SUCCESS_MESSAGE, "data": data} for name, data in made.items()},
        ),
    }


def _refused(status: int, codes: Sequence[str], row: Operation) -> Json:
    names = [name for code in codes for name in _refusal_examples(code)]
    if not row.writes:
        names = [name for name in names if name != _UNKNOWN]
    told = {field: schema for code in codes for field, schema in descriptions.REFUSAL_DATA.get(code, {}).items()}
    schema = {
        "allOf": [
            {"$ref": f"{_SCHEMAS}Refusal"},
            {"properties": {"code": {"enum": list(codes)}, "data": {"properties": told}}},
        ]
    }
    meanings = [f"- `{code}` {descriptions.CODES[code]}" for code in codes]
    return {
        "description": "\n".join([f"{HTTPStatus(status).phrase}:", "", *meanings]),
        "headers": _header_references(*_EVERY_ANSWER, *_OF_STATUS.get(status, ())),
        "content": {
            "application/json": {
                "schema": schema,
                "examples": {name: {"$ref": f"#/components/examples/{name}"} for name in names},
            }
        },
    }


def _content(schema: Json, values: Mapping[str, Any]) -> Json:
    return {
        "application/json": {"schema": schema, "examples": {name: {"value": value} for name, value in values.items()}}
    }


def _sent(request: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(request))


# Refusals

_UNKNOWN = "900001-outcome-unknown"


def _codes(rows: Iterable[Operation]) -> list[str]:
    """Every code a call of these rows can be answered with, in the order of the table of codes."""
    named = {*COMMON, *(code for row in rows for code in row.refusals)}
    return [code for code in _STATUS if code in named]


def _refusal_examples(code: str) -> dict[str, Json]:
    if code == "000001":
        return {code: {"summary": descriptions.CODES[code], "value": examples.unexpected()}}
    found = {code: examples.refused(code)}
    if code == "900001":
        found[_UNKNOWN] = examples.unknown_outcome()
    return {
        name: {"summary": descriptions.CODES[code], "value": examples.refusal_body(why)} for name, why in found.items()
    }


def _codes_table(rows: Iterable[Operation]) -> str:
    lines = [f"| `{code}` | {_STATUS[code]} | {descriptions.CODES[code]} |" for code in _codes(rows)]
    success = f"| `{SUCCESS}` | 200 | {SUCCESS_MESSAGE} |"
    return "\n".join(["| code | HTTP | meaning |", "|---|---|---|", success, *lines])


# Schemas


def _schemas(rows: Iterable[Operation]) -> Json:
    """The structs of calls, answers and events as the wire has them."""
    types = dict.fromkeys([struct for row in rows for struct in (row.takes, row.answers)] + [Snapshot])
    _, found = msgspec.json.schema_components(types, ref_template=_SCHEMAS + "{name}")
    return {name: _as_on_the_wire(name, schema) for name, schema in sorted(found.items())} | {
        "Refusal": {
            "title": "Refusal",
            "description": "The envelope of a call that was refused. Branch on `code`; `message` is for people.",
            "type": "object",
            "required": ["code", "message", "data"],
            "properties": {
                "code": {"type": "string", "pattern": "^[0-9]{6}$", "description": "The result code."},
                "message": {"type": "string", "description": "What was wrong and what is accepted."},
                "data": {"type": "object", "description": "What else a program can use; often empty."},
            },
        }
    }


def _schema(struct: type) -> Json:
    _, found = msgspec.json.schema_components([struct], ref_template="{name}")
    return found[struct.__name__]


def _as_on_the_wire(name: str, schema: Json) -> Json:
    properties = {
        field: _described(f"{name}.{field}", _corrected(field, inner)) for field, inner in schema["properties"].items()
    }
    corrected = {**schema, "properties": properties}
    if name in _NAMED_BY:
        keyword, names = _NAMED_BY[name]
        corrected[keyword] = [_given(one) for one in names]
    if "description" in schema:
        corrected["description"] = " ".join(_CITATION.sub("", schema["description"]).split())
    return corrected


def _given(name: str) -> Json:
    """A call that has this parameter; null counts as left out."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _corrected(field: str, schema: Json) -> Json:
    """A field's schema where msgspec's says less, or other, than what is sent."""
    if not schema:  # msgspec.Raw: the literal of an amount
        return dict(_MONEY_SENT)
    if "type" not in schema and schema.get("description") == calls.NOT_ACCEPTED:
        return {**schema, "type": "null"}
    if schema.get("format") == "decimal":  # Decimal is a number on the wire (wire/envelope.py)
        return {"type": "number", "minimum": 0}
    if schema == {"type": "string"} and field in _AMOUNTS:
        return dict(_MONEY_ANSWERED)
    if schema == {"type": "string"} and field.endswith(
        ("Time", "time")
    ):  # a datetime that msgspec takes without an offset too
        return {"type": "string", "format": "date-time"}
    return _ecma(schema)


def _ecma(schema: Any) -> Any:
    r"""Python's `\Z` is JavaScript's `$`."""
    if isinstance(schema, dict):
        return {key: _ecma(inner) for key, inner in schema.items()}
    if isinstance(schema, list):
        return [_ecma(inner) for inner in schema]
    return schema.removesuffix(r"\Z") + "$" if isinstance(schema, str) and schema.endswith(r"\Z") else schema


def _described(name: str, schema: Json) -> Json:
    text = descriptions.field(name)
    return {**schema, "description": text} if text else schema


# Webhooks


def _webhook(event_type: EventType, links: Links) -> Json:
    event = msgspec.json.decode(examples.event(event_type, links))
    schema = {
        "allOf": [
            {"$ref": f"{_SCHEMAS}Snapshot"},
            {"required": ["eventType", "changeHints"], "properties": {"eventType": {"const": event_type}}},
        ]
    }
    return {
        "operationId": f"on{event_type.title().replace('_', '')}",
        "summary": descriptions.EVENTS[event_type][0],
        "description": f"{descriptions.EVENTS[event_type][1]}\n\n{descriptions.RECEIVING}",
        "tags": ["webhook"],
        "security": [],
        "parameters": _webhook_parameters(),
        "requestBody": {"required": True, "content": _content(schema, {event_type: event})},
        "responses": {
            "2XX": {"description": "Received. Answer within 10 seconds and work afterwards."},
            "410": {"description": "Gone: no more events are sent until `/webhook/set` is called again."},
            "default": {"description": "Not received: sent again later, at most 8 times in all."},
        },
    }


def _webhook_parameters() -> list[Json]:
    return [
        {"name": name, "in": "header", "required": required, "description": text, "schema": schema, "example": example}
        for name, required, text, schema, example in (
            (signing.ACCESS_CODE, True, "Your AppKey.", _APP_KEY, examples.APP_KEY),
            (signing.REQUEST_ID, True, "A UUID, new for each attempt.", _UUID, examples.REQUEST_ID),
            (signing.TIMESTAMP, True, "Milliseconds since 1970, new for each attempt.", _TIMESTAMP, _NOW),
            (signing.SIGNATURE, True, descriptions.SIGNATURE_OF_EVENT, _SIGNATURE, examples.signature()),
            (signing.PREVIOUS_SIGNATURE, False, descriptions.PREVIOUS_SIGNATURE, _SIGNATURE, examples.signature()),
            (signing.DELIVERY_ID, True, descriptions.DELIVERY_ID, {"type": "string"}, "8123"),
            (signing.DELIVERY_ATTEMPT, True, descriptions.DELIVERY_ATTEMPT, _COUNT, 1),
            (signing.ORDER_VERSION, True, descriptions.ORDER_VERSION, _COUNT, 2),
        )
    ]


# Headers and signing

_APP_KEY: Json = {"type": "string", "pattern": "^[A-Za-z0-9_]{1,64}$"}
_UUID: Json = {"type": "string", "pattern": "^([0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32})$"}
_TIMESTAMP: Json = {"type": "string", "pattern": "^[0-9]{13}$"}
_SIGNATURE: Json = {"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"}
_COUNT: Json = {"type": "integer", "minimum": 1}
_NOW = str(examples.TIMESTAMP_MS)

_SECURITY: Json = {
    name: {"type": "apiKey", "in": "header", "name": name, "description": text}
    for name, text in (
        (signing.ACCESS_CODE, "Your AppKey, 1 to 64 of `[A-Za-z0-9_]`. It names the tenant; no other id is sent."),
        (signing.REQUEST_ID, "A UUID, with or without dashes, new with each call, also with a retry."),
        (signing.TIMESTAMP, "Milliseconds since 1970-01-01T00:00:00Z, 13 digits, within 300 s of the server's clock."),
        (signing.SIGNATURE, descriptions.SIGNATURE_OF_CALL),
    )
}

_RATE = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_EVERY_ANSWER = (signing.TRACE_ID, signing.REQUEST_ID, *_RATE)
_OF_STATUS = {405: ("Allow",), 429: ("Retry-After",), 503: ("Retry-After",)}
_HEADERS: Json = {
    signing.TRACE_ID: {
        "description": "Names this answer in the service's logs: give it to support.",
        "required": True,
        "schema": {"type": "string"},
        "example": examples.TRACE_ID,
    },
    signing.REQUEST_ID: {
        "description": "The call's own, where it was a UUID.",
        "schema": _UUID,
        "example": examples.REQUEST_ID,
    },
    "X-RateLimit-Limit": {
        "description": "Calls a second your tenant may make. Absent without a limit, and where authentication failed.",
        "schema": _COUNT,
        "example": 10,
    },
    "X-RateLimit-Remaining": {
        "description": "Calls that would pass at once; the bucket holds two seconds of them.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 19,
    },
    "X-RateLimit-Reset": {
        "description": "Seconds until the bucket is full again, rounded up.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 1,
    },
    "Retry-After": {
        "description": "Seconds to wait before the next try.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
        "example": 1,
    },
    "Allow": {"description": "The method that is.", "required": True, "schema": {"const": "POST"}},
}


def _header_references(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _worked_example() -> str:
    lines = {
        "AppSecret": examples.APP_SECRET,
        signing.ACCESS_CODE: examples.APP_KEY,
        signing.REQUEST_ID: examples.REQUEST_ID,
        signing.TIMESTAMP: _NOW,
        "rawBody": "{}",
        "stringToSign": f"{_NOW}{examples.REQUEST_ID}{examples.APP_KEY}{{}}",
        signing.SIGNATURE: examples.signature(),
    }
    return "\n".join(f"    {name:<13} {value}" for name, value in lines.items())
