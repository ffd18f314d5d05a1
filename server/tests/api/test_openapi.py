"""Is the OpenAPI document valid, complete and true? Held against the real rows, the contract and the codes."""

import json
import re
import runpy
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
import openapi_spec_validator
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from dealer_server.api.openapi import examples, generator, schemas
from dealer_server.api.openapi.examples import Example
from dealer_server.api.routes import ROUTES, Route
from dealer_server.dev import catalogue
from dealer_server.rules import refusal
from dealer_server.rules.orders import order, priced_lines
from dealer_server.rules.orders.priced_lines import Offer
from dealer_server.rules.result_codes import STATUS
from esim_dealer.wire import calls, envelope, signing
from esim_dealer.wire import operations as wire
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import ChangeHint, EventType, ResultCode
from support import paths

BASE_URL = "https://api.example.com"
VECTORS = json.loads((paths.VECTORS / "signing.json").read_text())["vectors"]


DOCUMENT = json.loads(msgspec.json.encode(generator.document(ROUTES, base_url=BASE_URL, version="1.0.2")))
OPERATIONS = {path: item["post"] for path, item in DOCUMENT["paths"].items()}
DOCS = paths.DOCS


class Shown(NamedTuple):
    where: str
    schema: dict[str, Any]
    value: Any


def resolved(value: dict[str, Any]) -> dict[str, Any]:
    """What a local reference refers to."""
    if "$ref" not in value:
        return value
    found: Any = DOCUMENT
    for step in value["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


def examples_of(where: str, content: dict[str, Any]) -> Iterator[Shown]:
    media = content["application/json"]
    assert media["examples"], where
    for name, example in media["examples"].items():
        yield Shown(f"{where} {name}", media["schema"], resolved(example)["value"])


def all_examples() -> Iterator[Shown]:
    for path, operation in OPERATIONS.items():
        yield from examples_of(f"{path} call", operation["requestBody"]["content"])
        for status, response in operation["responses"].items():
            yield from examples_of(f"{path} {status}", response["content"])
    for event_type, item in DOCUMENT["webhooks"].items():
        yield from examples_of(event_type, item["post"]["requestBody"]["content"])


def header_examples() -> Iterator[Shown]:
    for name, header in DOCUMENT["components"]["headers"].items():
        yield Shown(name, header["schema"], header.get("example", "POST"))
    for item in DOCUMENT["webhooks"].values():
        for header in item["post"]["parameters"]:
            yield Shown(header["name"], header["schema"], header["example"])


def refused_codes(operation: dict[str, Any]) -> dict[str, int]:
    """Every code an operation's responses name, with the status it stands under."""
    found = {}
    for status, response in operation["responses"].items():
        schema = response["content"]["application/json"]["schema"]
        if status != "200":
            found |= dict.fromkeys(schema["allOf"][1]["properties"]["code"]["enum"], int(status))
    return found


def test_the_document_is_valid_openapi() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    openapi_spec_validator.validate(DOCUMENT)


def test_every_operation_is_there_under_its_full_path() -> None:
    assert list(OPERATIONS) == [f"/open-api/v1{operation.path}" for operation in wire.OPERATIONS]
    assert DOCUMENT["servers"] == [{"url": BASE_URL}]
    assert len({operation["operationId"] for operation in OPERATIONS.values()}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_code_a_route_names_stands_under_its_status(route: Route[Any, Any]) -> None:
    codes = refused_codes(OPERATIONS[calls.PREFIX + route.path])
    assert set(route.refusals) <= set(codes)
    assert {code: STATUS[code] for code in codes} == codes  # type: ignore[index]


def test_every_code_of_the_routes_is_a_code_of_the_contract_and_has_an_example() -> None:
    named = {code for operation in OPERATIONS.values() for code in refused_codes(operation)}
    assert named <= set(get_args(ResultCode))
    assert named == {name[:6] for name in DOCUMENT["components"]["examples"]}
    assert named >= {*generator.COMMON, *(code for route in ROUTES for code in route.refusals)}
    for code in named:
        assert f"| `{code}` | {STATUS[code]} |" in DOCUMENT["info"]["description"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"operation": replace(wire.HEALTH, path="/esim/new")}, "no example"),
        ({"operation": replace(wire.HEALTH, path="/new/list")}, "a tag new that texts.TAGS does not describe"),
        ({"summary": ""}, "no summary or no description"),
        ({"refusals": ("310299",)}, "310299, of which result_codes.RESULT_CODES has no example"),
        ({"operation": replace(wire.HEALTH, answer=calls.Balance)}, "an example that does not fit"),
    ],
)
def test_a_route_without_words_or_example_is_named(changed: dict[str, Any], missing: str) -> None:
    generator.require_complete(ROUTES)
    route = replace(ROUTES[0], **changed)
    with pytest.raises(generator.Incomplete, match=missing) as error:
        generator.require_complete([*ROUTES, route])
    assert route.path in str(error.value)


def test_a_field_without_words_is_named() -> None:
    class Colour(calls.Answer):
        favourite_colour: str | msgspec.UnsetType = msgspec.UNSET

    route = replace(ROUTES[0], operation=replace(wire.HEALTH, answer=Colour))
    with pytest.raises(generator.Incomplete, match=r"Colour\.favouriteColour"):
        generator.require_complete([route])


def test_a_request_that_names_a_profile_in_two_ways_says_whether_one_or_either_is_taken() -> None:
    """Filters of lists are all optional; what else takes profileId and iccid needs one of them."""
    two_names = {
        route.operation.request.__name__
        for route in ROUTES
        if {"profileId", "iccid"} <= {field.encode_name for field in msgspec.structs.fields(route.operation.request)}
    }
    assert two_names - {"PackageList", "ProfileList"} <= schemas.NAMED_BY.keys()


def test_no_example_is_left_over() -> None:
    assert examples.load().keys() == {route.path for route in ROUTES}
    assert examples.fault(ROUTES[0], Example({}, {})) == "has no example"


def test_every_code_that_a_refusal_of_every_call_has_is_common() -> None:
    """The classes of authentication and parsing (codes 000xxx and 1xxxxx) are common to all operations."""
    early = {one.code for one in refusal.Refusal.__subclasses__() if one.code[0] in "01" and one.code != "000111"}
    assert early <= set(generator.COMMON)


@pytest.mark.parametrize("example", [*all_examples(), *header_examples()], ids=lambda example: example.where)
def test_examples_fit_their_schemas(example: Shown) -> None:
    schema = {**example.schema, "components": DOCUMENT["components"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(example.value)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_example_calls_and_answers_are_those_of_the_wire(route: Route[Any, Any]) -> None:
    operation = OPERATIONS[calls.PREFIX + route.path]
    for example in examples_of("call", operation["requestBody"]["content"]):
        msgspec.json.decode(msgspec.json.encode(example.value), type=route.operation.request)
    for example in examples_of("answer", operation["responses"]["200"]["content"]):
        data = msgspec.json.encode(example.value["data"])
        read = msgspec.json.decode(data, type=route.operation.answer)
        assert json.loads(envelope.encoder.encode(read)) == example.value["data"]


def test_the_example_order_would_be_placed() -> None:
    value = next(examples_of("", OPERATIONS["/open-api/v1/esim/order"]["requestBody"]["content"])).value
    call = msgspec.json.decode(msgspec.json.encode(value), type=calls.PlaceOrder)
    packages = {package.package_code: package for package in catalogue.catalogue("test")}
    wanted = order.order_request(
        1, call, priced_lines.price_lines(call, "USD", lambda code: Offer(packages[code], packages[code].price))
    )
    assert wanted.refused is None


def test_example_events_are_snapshots_with_hints() -> None:
    assert list(DOCUMENT["webhooks"]) == list(get_args(EventType))
    for event_type, item in DOCUMENT["webhooks"].items():
        for example in examples_of(event_type, item["post"]["requestBody"]["content"]):
            read = msgspec.json.decode(msgspec.json.encode(example.value), type=Snapshot)
            assert read.event_type == event_type
            assert set(read.change_hints or ()) <= set(get_args(ChangeHint))


def test_the_worked_example_is_the_published_vector() -> None:
    vector = VECTORS[0]
    text = DOCUMENT["info"]["description"]
    for name in ("AppSecret", "RT-AccessCode", "RT-RequestID", "RT-Timestamp", "rawBody", "X-Signature"):
        found = re.search(rf"^    {name} +(\S+)$", text, re.MULTILINE)
        assert found
        assert (
            found[1]
            == vector[
                {
                    "AppSecret": "appSecret",
                    "RT-AccessCode": "appKey",
                    "RT-RequestID": "requestId",
                    "RT-Timestamp": "timestamp",
                    "rawBody": "body",
                    "X-Signature": "signature",
                }[name]
            ]
        )


def test_calls_are_secured_by_the_four_signing_headers_together() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    headers = [signing.ACCESS_CODE, signing.REQUEST_ID, signing.TIMESTAMP, signing.SIGNATURE]
    assert [scheme["name"] for scheme in schemes.values()] == headers
    assert {(scheme["type"], scheme["in"]) for scheme in schemes.values()} == {("apiKey", "header")}
    assert DOCUMENT["security"] == [{name: [] for name in schemes}]


def test_answers_name_the_headers_they_carry() -> None:
    for operation in OPERATIONS.values():
        for status, response in operation["responses"].items():
            headers = set(response["headers"])
            assert headers >= {"X-Trace-Id", "RT-RequestID", "X-RateLimit-Limit", "X-RateLimit-Remaining"}
            assert ("Retry-After" in headers) == (status in ("429", "503"))
            assert ("Allow" in headers) == (status == "405")


def test_webhooks_carry_the_signing_and_delivery_headers() -> None:
    for item in DOCUMENT["webhooks"].values():
        names = {header["name"] for header in item["post"]["parameters"]}
        assert names == {
            signing.ACCESS_CODE,
            signing.REQUEST_ID,
            signing.TIMESTAMP,
            signing.SIGNATURE,
            signing.PREVIOUS_SIGNATURE,
            signing.DELIVERY_ID,
            signing.DELIVERY_ATTEMPT,
            signing.ORDER_VERSION,
        }


def test_money_is_a_number_or_string_in_calls_and_a_string_in_answers() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("price", "amount"):
        schema = schemas["OrderLine" if name == "price" else "PlaceOrder"]["properties"][name]
        assert schema["type"] == ["number", "string"]
        validator = Draft202012Validator(schema)
        assert all(validator.is_valid(value) for value in (1.8, 2, "1.80", "0", "12345"))
        assert not any(validator.is_valid(value) for value in ("", "1e3", "-1", "01", "1.", "1.23456", -1, None, []))
    for name, struct in (("price", "CheckLine"), ("amount", "CheckOrder")):
        assert schemas[struct]["properties"][name]["type"] == ["number", "string", "null"]
    assert schemas["Snapshot"]["properties"]["amount"]["type"] == "string"
    assert schemas["Snapshot"]["properties"]["refundAmount"]["type"] == "number"


def test_every_field_is_described_and_no_description_is_left_over() -> None:
    fields = {
        f"{name}.{field}": schema.get("description")
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, schema in schema["properties"].items()
    }
    assert [name for name, text in fields.items() if not text] == []
    used = {name if name in schemas.FIELDS else name.partition(".")[2] for name in fields}
    assert set(schemas.FIELDS) - used == set()


def test_names_are_camel_case_and_patterns_are_those_of_json_schema() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field in schema["properties"]:
            assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", field), f"{name}.{field}"
    assert r"\\Z" not in json.dumps(DOCUMENT["components"])


def test_texts_cite_no_document_by_number() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert not re.search(r"\((specification|decisions)", schema.get("description", "")), name


def test_times_are_marked_as_such() -> None:
    """Answers name every time `...Time`, `time` or `...At`, by which the document knows it for one."""
    for struct in {route.operation.answer for route in ROUTES} | {Snapshot} | set(calls.Answer.__subclasses__()):
        for field in msgspec.structs.fields(struct):
            hint = get_type_hints(struct)[field.name]
            if datetime in (hint, *get_args(hint)):
                assert field.encode_name.endswith(schemas.TIMES)
                if struct.__name__ in (described := DOCUMENT["components"]["schemas"]):
                    schema = described[struct.__name__]["properties"][field.encode_name]
                    assert schema["format"] == "date-time"


def test_the_written_reference_is_current():
    made = runpy.run_path(str(DOCS / "__main__.py"))
    written = (DOCS / "reference.md").read_text()
    assert written == made["reference"](made["document"]()), "run `make docs`"
    headings = [line.removeprefix("### ") for line in written.splitlines() if line.startswith("### ")]
    anchors = [re.sub(r"[^a-z0-9-]", "", heading.lower().replace(" ", "-")) for heading in headings]
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r"\]\(#([^)]+)\)", written)) <= set(anchors)
