"""What does the OpenAPI document say? Made from the routes, the structs of the contract and the result codes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from dealer_server.api import replies
from dealer_server.api.openapi import examples, texts
from dealer_server.api.openapi.examples import Example
from dealer_server.api.openapi.schemas import SCHEMAS, has_parameters, requires_body, schemas, undescribed
from dealer_server.api.routes import Route
from dealer_server.rules import refusal
from dealer_server.rules.result_codes import RESULT_CODES
from esim_dealer.wire import calls, envelope, signing
from esim_dealer.wire.events import EVENTS
from esim_dealer.wire.operations import OPERATIONS
from esim_dealer.wire.vocabulary import SUCCESS, SUCCESS_MESSAGE, EventType, ResultCode

Json = dict[str, Any]
Routes = Iterable[Route[Any, Any]]

# What any call may be refused with, in the order of the checks (specification 5.4).
COMMON: Sequence[ResultCode] = (
    "000112", "000103", "000110", "000109", "000101", "000102", "101005", "101006", "101002", "101001", "101003",
    "101004", "101013", "101007", "000104", "000105", "000106", "000107", "000108", "900001", "000001",
)  # fmt: skip
OF_PARAMETERS = ("000105", "000106", "000107")


class Incomplete(Exception):
    """A route that the document cannot describe, and what it lacks."""


def require_complete(routes: Routes) -> None:
    """Raises Incomplete. The tests and the making of the documentation call it; a server that starts need not, as its
    routes are those of the release."""
    by_path = examples.load()
    routes = tuple(routes)
    for route in routes:
        if faults := [*_faults(route, by_path.get(route.path))]:
            raise Incomplete(f"{route.path} {', '.join(faults)}")
    if nameless := undescribed(routes):
        raise Incomplete(f"no words describe {', '.join(nameless)}: add them to FIELDS of its module in api/routes")
    if others := sorted(by_path.keys() - {operation.path for operation in OPERATIONS}):
        raise Incomplete(f"there are examples of {', '.join(others)}, but no such operation")


def _faults(route: Route[Any, Any], example: Example | None) -> Iterable[str]:
    if not (route.summary and route.description):
        yield "has no summary or no description"
    if (tag := _tag(route)) not in texts.TAGS:
        yield f"has a tag {tag} that texts.TAGS does not describe"
    for code in route.refusals:
        if code not in RESULT_CODES or RESULT_CODES[code].example is None:
            yield f"may be refused with {code}, of which result_codes.RESULT_CODES has no example"
    if fault := examples.fault(route, example):
        yield fault


def document(routes: Routes, *, base_url: str, version: str) -> Json:
    """The OpenAPI 3.1 document of these routes, as served at `base_url`."""
    routes, by_path = tuple(routes), examples.load(base_url)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "eSIM Dealer Open API",
            "version": version,
            "summary": "Sell eSIM data packages: order from the BALANCE wallet, receive signed webhooks.",
            "contact": {"name": "The operator of this service", "url": base_url},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": texts.introduction(_worked_example(), _codes_table(routes)),
        },
        "servers": [{"url": base_url}],
        "tags": [{"name": name, "description": text} for name, text in texts.TAGS.items()],
        "paths": {f"{calls.PREFIX}{route.path}": {"post": _operation(route, by_path[route.path])} for route in routes},
        "webhooks": {event_type: {"post": _webhook(event_type, base_url)} for event_type in EVENTS},
        "security": [{name: [] for name in _SECURITY}],
        "components": {
            "schemas": schemas(routes),
            "headers": _HEADERS,
            "examples": {name: value for code in _codes(routes) for name, value in _refusal_examples(code).items()},
            "securitySchemes": _SECURITY,
        },
    }


# Operations


def _operation(route: Route[Any, Any], example: Example) -> Json:
    name, request = route.path.removeprefix("/"), route.operation.request
    return {
        "operationId": re.sub(r"/(.)", lambda match: match[1].upper(), name),
        "summary": route.summary,
        "description": f"{route.description}\n\nScope of the AppKey: `{route.operation.scope}`.",
        "tags": [_tag(route)],
        "requestBody": {
            "required": requires_body(request),
            "content": _content({"$ref": SCHEMAS + request.__name__}, {"call": example.request}),
        },
        "responses": _responses(route, example),
    }


def _tag(route: Route[Any, Any]) -> str:
    return route.path.removeprefix("/").partition("/")[0]


def _responses(route: Route[Any, Any], example: Example) -> Json:
    """The answer, and the refusals this operation may give, grouped by HTTP status."""
    by_status: dict[int, list[ResultCode]] = {}
    for code in (*_common(route), *route.refusals):
        by_status.setdefault(RESULT_CODES[code].status, []).append(code)
    return {"200": _success(route, example)} | {
        str(status): _refused(status, by_status[status], route) for status in sorted(by_status)
    }


def _common(route: Route[Any, Any]) -> Iterable[ResultCode]:
    """The codes of every call; a call without parameters has none that are missing, empty or too long."""
    left_out = () if has_parameters(route.operation.request) else OF_PARAMETERS
    return (code for code in COMMON if code not in left_out)


def _success(route: Route[Any, Any], example: Example) -> Json:
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
                    "data": {"$ref": SCHEMAS + route.operation.answer.__name__},
                },
            },
            {
                name: {"code": SUCCESS, "message": SUCCESS_MESSAGE, "data": data}
                for name, data in example.answers.items()
            },
        ),
    }


def _refused(status: int, codes: Sequence[ResultCode], route: Route[Any, Any]) -> Json:
    names = [name for code in codes for name in _refusal_examples(code)]
    if not route.operation.writes:
        names = [name for name in names if name != _UNKNOWN]
    data = {field: schema for code in codes for field, schema in RESULT_CODES[code].data.items()}
    schema = {
        "allOf": [
            {"$ref": f"{SCHEMAS}Refusal"},
            {"properties": {"code": {"enum": list(codes)}, "data": {"properties": data}}},
        ]
    }
    meanings = [f"- `{code}` {RESULT_CODES[code].meaning}" for code in codes]
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


# Refusals

_UNKNOWN = "900001-outcome-unknown"


def _codes(routes: Routes) -> list[ResultCode]:
    """Every code a call of these routes can be refused with, in the order of the table of codes."""
    named = {*COMMON, *(code for route in routes for code in route.refusals)}
    return [code for code in RESULT_CODES if code in named]


def _refusal_examples(code: ResultCode) -> dict[str, Json]:
    """By name; a code has one example, 900001 a second."""
    described = RESULT_CODES[code]
    if described.example is None:
        body = replies.unexpected(examples.TRACE_ID.encode(), None)[2]
        return {code: {"summary": described.meaning, "value": msgspec.json.decode(body)}}
    refusals = {code: described.example}
    if code == "900001":
        refusals[_UNKNOWN] = refusal.OutcomeUnknown()
    return {
        name: {
            "summary": described.meaning,
            "value": {"code": code, "message": example.message, "data": dict(example.data)},
        }
        for name, example in refusals.items()
    }


def _codes_table(routes: Routes) -> str:
    rows = [f"| `{code}` | {RESULT_CODES[code].status} | {RESULT_CODES[code].meaning} |" for code in _codes(routes)]
    success = f"| `{SUCCESS}` | 200 | {SUCCESS_MESSAGE} |"
    return "\n".join(["| code | HTTP | meaning |", "|---|---|---|", success, *rows])


# Webhooks


def _webhook(event_type: EventType, base_url: str) -> Json:
    event = EVENTS[event_type]
    body = envelope.encoder.encode(event.example).replace(examples.BASE_URL.encode(), base_url.encode())
    schema = {
        "allOf": [
            {"$ref": f"{SCHEMAS}Snapshot"},
            {"required": ["eventType", "changeHints"], "properties": {"eventType": {"const": event_type}}},
        ]
    }
    return {
        "operationId": f"on{event_type.title().replace('_', '')}",
        "summary": event.summary,
        "description": f"{event.description}\n\n{texts.RECEIVING}",
        "tags": ["webhook"],
        "security": [],
        "parameters": _webhook_parameters(event.order_version),
        "requestBody": {"required": True, "content": _content(schema, {event_type: msgspec.json.decode(body)})},
        "responses": {
            "2XX": {"description": "Received. Answer within 10 seconds and work afterwards."},
            "410": {"description": "Gone: no more events are sent until `/webhook/set` is called again."},
            "default": {"description": "Not received: sent again later, at most 8 times in all."},
        },
    }


def _webhook_parameters(order_version: int) -> list[Json]:
    return [
        {"name": name, "in": "header", "required": required, "description": text, "schema": schema, "example": example}
        for name, required, text, schema, example in (
            (signing.ACCESS_CODE, True, "Your AppKey.", _APP_KEY, examples.APP_KEY),
            (signing.REQUEST_ID, True, "A UUID, new for each attempt.", _UUID, examples.REQUEST_ID),
            (signing.TIMESTAMP, True, "Milliseconds since 1970, new for each attempt.", _TIMESTAMP, _NOW),
            (signing.SIGNATURE, True, texts.SIGNATURE_OF_EVENT, _SIGNATURE, examples.SIGNATURE),
            (signing.PREVIOUS_SIGNATURE, False, texts.PREVIOUS_SIGNATURE, _SIGNATURE, examples.SIGNATURE),
            (signing.DELIVERY_ID, True, texts.DELIVERY_ID, {"type": "string"}, "8123"),
            (signing.DELIVERY_ATTEMPT, True, texts.DELIVERY_ATTEMPT, _COUNT, 1),
            (signing.ORDER_VERSION, True, texts.ORDER_VERSION, _COUNT, order_version),
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
        (signing.SIGNATURE, texts.SIGNATURE_OF_CALL),
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
        signing.SIGNATURE: examples.SIGNATURE,
    }
    return "\n".join(f"    {name:<13} {value}" for name, value in lines.items())
