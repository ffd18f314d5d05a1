"""Is the OpenAPI document valid, complete and true? Held against the real rows, the contract and the codes."""

import json
import re
import runpy
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
import openapi_spec_validator
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from dealer_server.api import routes
from dealer_server.api.openapi import descriptions, generator
from dealer_server.api.replies import STATUS
from dealer_server.dev import catalogue
from dealer_server.rules import refusal
from dealer_server.rules.orders import order, priced_lines
from dealer_server.rules.orders.priced_lines import Offer
from esim_dealer.wire import calls, envelope, signing
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import ChangeHint, EventType, ResultCode
from support import paths

BASE_URL = "https://api.example.com"
VECTORS = json.loads((paths.VECTORS / "signing.json").read_text())["vectors"]


class Placeholder:
    """Stands for the parts that operations run on: the document needs what the rows say, not what they do."""

    def __getattr__(self, name: str) -> "Placeholder":
        return self


ROWS = routes.operations(routes.Parts(*(Placeholder() for _ in routes.Parts.__struct_fields__)))  # type: ignore[arg-type]
DOCUMENT = json.loads(msgspec.json.encode(generator.document(ROWS, base_url=BASE_URL, version="1.0.2")))
OPERATIONS = {path: item["post"] for path, item in DOCUMENT["paths"].items()}
DOCS = paths.DOCS


class Example(NamedTuple):
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


def examples_of(where: str, content: dict[str, Any]) -> Iterator[Example]:
    media = content["application/json"]
    assert media["examples"], where
    for name, example in media["examples"].items():
        yield Example(f"{where} {name}", media["schema"], resolved(example)["value"])


def all_examples() -> Iterator[Example]:
    for path, operation in OPERATIONS.items():
        yield from examples_of(f"{path} call", operation["requestBody"]["content"])
        for status, response in operation["responses"].items():
            yield from examples_of(f"{path} {status}", response["content"])
    for event_type, item in DOCUMENT["webhooks"].items():
        yield from examples_of(event_type, item["post"]["requestBody"]["content"])


def header_examples() -> Iterator[Example]:
    for name, header in DOCUMENT["components"]["headers"].items():
        yield Example(name, header["schema"], header.get("example", "POST"))
    for item in DOCUMENT["webhooks"].values():
        for header in item["post"]["parameters"]:
            yield Example(header["name"], header["schema"], header["example"])


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


def test_every_row_is_there_under_its_full_path() -> None:
    assert list(OPERATIONS) == [f"/open-api/v1{row.path}" for row in ROWS]
    assert DOCUMENT["servers"] == [{"url": BASE_URL}]
    assert len({operation["operationId"] for operation in OPERATIONS.values()}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.path)
def test_every_row_has_a_text_and_a_tag_that_is_described(row: routes.Operation) -> None:
    operation = OPERATIONS[calls.PREFIX + row.path]
    assert row.path in descriptions.OPERATIONS
    assert set(operation["tags"]) <= {tag["name"] for tag in DOCUMENT["tags"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.path)
def test_every_code_a_row_names_stands_under_its_status(row: routes.Operation) -> None:
    codes = refused_codes(OPERATIONS[calls.PREFIX + row.path])
    assert set(row.refusals) <= set(codes)
    assert {code: STATUS[code] for code in codes} == codes  # type: ignore[index]


def test_every_code_of_the_rows_is_a_code_of_the_contract_and_has_an_example() -> None:
    named = {code for operation in OPERATIONS.values() for code in refused_codes(operation)}
    assert named <= set(get_args(ResultCode))
    assert named == {name[:6] for name in DOCUMENT["components"]["examples"]}
    assert named >= {*generator.COMMON, *(code for row in ROWS for code in row.refusals)}
    for code in named:
        assert f"| `{code}` | {STATUS[code]} |" in DOCUMENT["info"]["description"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "lacking"),
    [
        ({"path": "/esim/new"}, ["text in descriptions.OPERATIONS", "example call", "example answer"]),
        ({"path": "/new/list"}, ["text for its tag new"]),
        ({"refusals": ("310299",)}, ["text for 310299", "example of 310299"]),
    ],
)
def test_an_operation_without_text_or_example_is_named_before_anybody_asks(
    changed: dict[str, Any], lacking: list[str]
) -> None:
    generator.require_complete(ROWS)
    row = msgspec.structs.replace(ROWS[0], **changed)
    with pytest.raises(generator.Incomplete) as told:
        generator.require_complete([*ROWS, row])
    assert row.path in str(told.value)
    for one in lacking:
        assert one in str(told.value)


def test_every_code_that_a_refusal_of_every_call_has_is_common() -> None:
    """The classes of authentication and parsing (codes 000xxx and 1xxxxx) are common to all operations."""
    early = {one.code for one in refusal.Refusal.__subclasses__() if one.code[0] in "01" and one.code != "000111"}
    assert early <= set(generator.COMMON)


@pytest.mark.parametrize("example", [*all_examples(), *header_examples()], ids=lambda example: example.where)
def test_examples_fit_their_schemas(example: Example) -> None:
    schema = {**example.schema, "components": DOCUMENT["components"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(example.value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.path)
def test_example_calls_and_answers_are_those_of_the_wire(row: routes.Operation) -> None:
    operation = OPERATIONS[calls.PREFIX + row.path]
    for example in examples_of("call", operation["requestBody"]["content"]):
        msgspec.json.decode(msgspec.json.encode(example.value), type=row.takes)
    for example in examples_of("answer", operation["responses"]["200"]["content"]):
        data = msgspec.json.encode(example.value["data"])
        read = msgspec.json.decode(data, type=row.answers)
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
    assert schemas["Snapshot"]["properties"]["amount"]["type"] == "string"
    assert schemas["Snapshot"]["properties"]["refundAmount"]["type"] == "number"


def test_every_field_is_described_and_no_description_is_left_over() -> None:
    fields = {
        f"{name}.{field}": schema.get("description")
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, schema in schema["properties"].items()
    }
    assert [name for name, text in fields.items() if not text] == []
    used = {name if name in descriptions._FIELDS else name.partition(".")[2] for name in fields}
    assert set(descriptions._FIELDS) - used == set()


def test_names_are_camel_case_and_patterns_are_those_of_json_schema() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field in schema["properties"]:
            assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", field), f"{name}.{field}"
    assert r"\\Z" not in json.dumps(DOCUMENT["components"])


def test_texts_cite_no_document_by_number() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert not re.search(r"\((specification|decisions)", schema.get("description", "")), name


def test_times_are_marked_as_such() -> None:
    """Answers name every time `...Time` or `time`, by which the document knows it for one."""
    for struct in {struct for row in ROWS for struct in (row.answers, Snapshot)} | set(calls.Answer.__subclasses__()):
        for field in msgspec.structs.fields(struct):
            hint = get_type_hints(struct)[field.name]
            if datetime in (hint, *get_args(hint)):
                assert field.encode_name.endswith(("Time", "time"))
                if struct.__name__ in (schemas := DOCUMENT["components"]["schemas"]):
                    schema = schemas[struct.__name__]["properties"][field.encode_name]
                    assert schema["format"] == "date-time"


def test_the_written_reference_is_current():
    made = runpy.run_path(str(DOCS / "__main__.py"))
    written = (DOCS / "reference.md").read_text()
    assert written == made["reference"](made["document"]()), "run `make docs`"
    headings = [line.removeprefix("### ") for line in written.splitlines() if line.startswith("### ")]
    anchors = [re.sub(r"[^a-z0-9-]", "", heading.lower().replace(" ", "-")) for heading in headings]
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r"\]\(#([^)]+)\)", written)) <= set(anchors)
