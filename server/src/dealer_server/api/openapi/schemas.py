"""How do the structs of the contract look as JSON Schema? As they are on the wire, each field with its words."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dealer_server.api.openapi import texts
from dealer_server.api.routes import MODULES, Route
from esim_dealer.wire import calls
from esim_dealer.wire.snapshot import Snapshot

Json = dict[str, Any]

SCHEMAS = "#/components/schemas/"
_MONEY = r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,4})?$"
_MONEY_SENT: Json = {"type": ["number", "string"], "pattern": _MONEY, "minimum": 0, "exclusiveMaximum": 10**12}
_MONEY_ANSWERED: Json = {"type": "string", "pattern": r"^-?(0|[1-9][0-9]*)(\.[0-9]{1,4})?$"}
_AMOUNTS = {
    "amount",
    "price",
    "retailPrice",
    "balance",
    "balanceAfter",
    "creditLimit",
    "availableBalance",
    "lowBalanceThreshold",
}
# Calls that name one thing by one of several parameters: oneOf where they exclude each other, else anyOf.
NAMED_BY: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "QueryOrder": ("anyOf", ("orderNo", "transactionId")),
    "RefundOrder": ("anyOf", ("orderNo", "transactionId")),
    "RefundProfile": ("anyOf", ("profileId", "iccid")),
    "RechargeProfile": ("oneOf", ("profileId", "iccid")),
    "ProfilePlans": ("oneOf", ("profileId", "iccid")),
    "VoidProfile": ("oneOf", ("profileId", "iccid")),
    "SuspendProfile": ("oneOf", ("profileId", "iccid")),
    "ProfileUsage": ("oneOf", ("profileId", "iccid")),
    "SendSms": ("oneOf", ("profileId", "iccid")),
    "AdvanceProfile": ("oneOf", ("profileId", "iccid")),
    "QueryTopup": ("anyOf", ("topupNo", "transactionId")),
    "CancelTopup": ("anyOf", ("topupNo", "transactionId")),
}
TIMES = ("Time", "time", "At")  # how the name of every time ends
_CITATION = re.compile(r"\s*\((?:specification|decisions)[^)]*\)")


def _joined() -> dict[str, str]:
    """The words of all fields. Raises LookupError where two modules describe the same one."""
    joined: dict[str, str] = {}
    for fields in (texts.FIELDS, *(module.FIELDS for module in MODULES)):
        if twice := joined.keys() & fields.keys():
            raise LookupError(f"described twice: {', '.join(sorted(twice))}")
        joined |= fields
    return joined


FIELDS: Mapping[str, str] = _joined()


def schemas(routes: Iterable[Route[Any, Any]]) -> Json:
    """The structs of requests, answers and events."""
    structs = [struct for route in routes for struct in (route.operation.request, route.operation.answer)]
    _, components = msgspec.json.schema_components(dict.fromkeys([*structs, Snapshot]), ref_template=SCHEMAS + "{name}")
    return {name: _as_on_the_wire(name, schema) for name, schema in sorted(components.items())} | {
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


def undescribed(routes: Iterable[Route[Any, Any]]) -> list[str]:
    """The fields of requests, answers and events that no words describe, as `Struct.field`."""
    return [
        f"{name}.{field}"
        for name, schema in schemas(routes).items()
        for field, described in schema["properties"].items()
        if "description" not in described
    ]


def has_parameters(request: type) -> bool:
    return bool(msgspec.structs.fields(request))


def requires_body(request: type) -> bool:
    """Whether an empty body, which counts as `{}`, is not enough."""
    return any(field.required for field in msgspec.structs.fields(request)) or request.__name__ in NAMED_BY


def _as_on_the_wire(name: str, schema: Json) -> Json:
    properties = {
        field: _described(f"{name}.{field}", _corrected(field, inner, field in schema["required"]))
        for field, inner in schema["properties"].items()
    }
    corrected = {**schema, "properties": properties}
    if name in NAMED_BY:
        keyword, names = NAMED_BY[name]
        corrected[keyword] = [_given(parameter) for parameter in names]
    if "description" in schema:
        corrected["description"] = " ".join(_CITATION.sub("", schema["description"]).split())
    return corrected


def _given(parameter: str) -> Json:
    """A call that has this parameter; null counts as left out."""
    return {"required": [parameter], "properties": {parameter: {"not": {"type": "null"}}}}


def _corrected(field: str, schema: Json, required: bool) -> Json:
    """A field's schema where msgspec's says less, or other, than what is sent."""
    if not schema:  # msgspec.Raw: the literal of an amount; null counts as left out
        return dict(_MONEY_SENT) if required else {**_MONEY_SENT, "type": [*_MONEY_SENT["type"], "null"]}
    if "type" not in schema and schema.get("description") == calls.NOT_ACCEPTED:
        return {**schema, "type": "null"}
    if schema.get("format") == "decimal":  # Decimal is a number on the wire (wire/envelope.py)
        return {"type": "number", "minimum": 0}
    if schema == {"type": "string"} and field in _AMOUNTS:
        return dict(_MONEY_ANSWERED)
    if schema == {"type": "string"} and field.endswith(TIMES):  # msgspec takes it without an offset too
        return {"type": "string", "format": "date-time"}
    return _ecma(schema)


def _ecma(schema: Any) -> Any:
    r"""Python's `\Z` is JavaScript's `$`; a choice of words says that they are text."""
    if isinstance(schema, dict):
        words = {"type": "string"} if "enum" in schema else {}  # msgspec leaves out what code generators look for
        return words | {key: _ecma(inner) for key, inner in schema.items()}
    if isinstance(schema, list):
        return [_ecma(inner) for inner in schema]
    return schema.removesuffix(r"\Z") + "$" if isinstance(schema, str) and schema.endswith(r"\Z") else schema


def _described(name: str, schema: Json) -> Json:
    text = FIELDS.get(name) or FIELDS.get(name.partition(".")[2])
    return {**schema, "description": text} if text else schema
