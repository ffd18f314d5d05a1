"""Do docs/specification.md and the contract use the same words? Each table of words is held against the code."""

import json
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, get_args, get_origin

import msgspec
import pytest

from dealer_server.api import authenticate, replies
from dealer_server.api.openapi import generator
from dealer_server.api.routes import ROUTES, Route
from dealer_server.dev import catalogue as generate
from dealer_server.rules import refusal
from dealer_server.rules.delivery import delivery
from dealer_server.rules.result_codes import STATUS
from dealer_server.rules.webhooks import backoff
from esim_dealer import operations as sdk_operations
from esim_dealer.wire import calls, signing, vocabulary
from esim_dealer.wire import operations as wire
from esim_dealer.wire.envelope import Envelope
from esim_dealer.wire.snapshot import OrderItem, Profile, Snapshot
from support import paths

TEXT = (paths.DOCS / "specification.md").read_text()
Row = list[str]


def tables() -> Iterator[tuple[Row, list[Row]]]:
    """Every table: its head, and its rows."""
    for found in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in found.splitlines())
        yield head, rows


TABLES = list(tables())


def table(name: str) -> list[Row]:
    """The rows of the one table whose first column is headed so."""
    found = [rows for head, rows in TABLES if head[0] == name]
    assert len(found) == 1, f"{len(found)} tables are headed {name}"
    return found[0]


def words(name: str) -> list[str]:
    return [row[0] for row in table(name)]


# The head of each table of words, and the words of the contract.
VOCABULARY = {
    "Scope": "Scope",
    "eventType": "EventType",
    "changeHint": "ChangeHint",
    "Health status": "HealthStatus",
    "payStatus": "PayStatus",
    "deliveryStatus": "DeliveryStatus",
    "orderStatus": "OrderStatus",
    "itemStatus": "ItemStatus",
    "lifecycleStatus": "LifecycleStatus",
    "planUseStatus": "PlanUseStatus",
    "Refund status": "RefundStatus",
    "refundStatus": "RefundItemStatus",
    "asyncStatus": "AsyncStatus",
    "availability": "Availability",
    "step": "AdvanceStep",
    "accountType": "AccountType",
    "entryType": "EntryType",
    "Top-up status": "TopupStatus",
    "SMS status": "SmsStatus",
    "orderType": "OrderType",
    "topUpMode": "PlanMode",
    "Plan status": "PlanStatus",
    "failReason": "SmsFailReason",
    "payMethod": "PayMethod",
    "Package type": "PackageType",
    "Package status": "PackageStatus",
    "locationType": "LocationType",
    "dataType": "DataType",
    "activationType": "ActivationType",
    "durationUnit": "DurationUnit",
    "Delivery state": "DeliveryState",
    "Delivery trigger": "DeliveryTrigger",
    "error": "AttemptError",
    "state": "EndpointState",
    "noticeType": "NoticeType",
    "smdpStatus": "SMDP_STATUSES",
    "esimStatus": "ESIM_STATUSES",
}


def in_code(name: str) -> list[str]:
    value = getattr(vocabulary, name)
    return list(value if isinstance(value, tuple) else get_args(value))


@pytest.mark.parametrize("head", VOCABULARY)
def test_the_table_has_the_words_of_the_contract(head: str) -> None:
    documented = words(head)
    assert len(documented) == len(set(documented))
    assert set(documented) == set(in_code(VOCABULARY[head]))


def test_every_word_of_the_contract_is_documented() -> None:
    of_words = {
        name
        for name, value in vars(vocabulary).items()
        if not name.startswith("_") and (get_origin(value) is not None or isinstance(value, tuple))
    }
    assert of_words == {*VOCABULARY.values(), "ResultCode"}


def codes() -> dict[str, int]:
    """Result codes and their HTTP statuses, from both tables of section 7."""
    rows = [row for head, rows in TABLES if head[0] == "code" for row in rows]
    found = {row[0]: int(row[1]) for row in rows}
    assert len(found) == len(rows), "a code stands there twice"
    return found


def test_result_codes_and_statuses_are_those_of_the_contract() -> None:
    assert codes() == dict(STATUS)
    assert set(codes()) == set(get_args(vocabulary.ResultCode))


def test_codes_of_every_call_are_the_ones_the_openapi_document_has_for_all() -> None:
    every_call = next(rows for head, rows in TABLES if head[0] == "code")
    of_some_calls = {"000000", "000111", "900002"}
    assert {row[0] for row in every_call} - of_some_calls == set(generator.COMMON)


def constants(module: ModuleType) -> set[str]:
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def test_headers_are_those_of_the_contract() -> None:
    sent = signing.signed_headers("ak", b"sk", b"", timestamp_ms=1, request_id="r")
    assert set(words("Request header")) == set(sent)
    assert set(words("Webhook header")) == {
        *sent,
        signing.PREVIOUS_SIGNATURE,
        signing.DELIVERY_ID,
        signing.DELIVERY_ATTEMPT,
        signing.ORDER_VERSION,
        signing.TEST,
        signing.STANDARD_ID,
        signing.STANDARD_TIMESTAMP,
        signing.STANDARD_SIGNATURE,
    }
    documented = {*words("Request header"), *words("Answer header"), *words("Webhook header")}
    assert constants(signing) <= documented | {signing.SIGNATURE_ALIAS}
    assert f"`{signing.SIGNATURE_ALIAS}`" in TEXT


def test_headers_of_answers_are_those_that_are_sent() -> None:
    limited = authenticate.TooManyCalls(authenticate.Allowance(False, 10, 0, 2.0, 0.1))
    method = authenticate.refusal.MethodNotAllowed()
    sent = {
        name
        for why in (limited, method)
        for name, _ in replies.headers(replies.refused(why, b"trace", b"request", getattr(why, "allowance", None))[1])
    }
    ordinary = {b"content-type", b"content-length", b"cache-control"}
    assert {name.lower().encode() for name in words("Answer header")} == sent - ordinary


def test_fields_are_those_of_the_contract() -> None:
    tables_of_fields = [rows for head, rows in TABLES if head[0] == "Field"]
    for struct in (
        calls.Health,
        Snapshot,
        OrderItem,
        Profile,
        calls.Package,
        calls.Balance,
        calls.Region,
        calls.OrderCheck,
        calls.CheckedItem,
    ):
        fields = {field.encode_name for field in msgspec.structs.fields(struct)}
        documented = [{name for row in rows for name in row[0].split(", ")} for rows in tables_of_fields]
        assert fields in documented, f"no table has exactly the fields of {struct.__name__}"


def test_fields_of_an_order_and_of_the_pager_are_those_of_the_contract() -> None:
    order = next(rows for head, rows in TABLES if head[:3] == ["Field", "Type", "Required"])
    fields = {field.encode_name for field in msgspec.structs.fields(calls.PlaceOrder)}
    lines = {f"items[].{field.encode_name}" for field in msgspec.structs.fields(calls.OrderLine)}
    assert {row[0] for row in order} == fields | lines
    pager = next(rows for head, rows in TABLES if head[:2] == ["Field", "In"])
    sides = {"request": calls.Pager, "answer": calls.Page}
    for side, struct in sides.items():
        fields = {field.encode_name for field in msgspec.structs.fields(struct)}
        assert {row[0] for row in pager if side in row[1]} == fields


def served() -> dict[str, Route[Any, Any]]:
    return {route.path: route for route in ROUTES}


def path_tables() -> list[list[Row]]:
    return [rows for head, rows in TABLES if head[0] == "path"]


def test_the_operations_served_and_their_parameters_are_those_of_the_routes() -> None:
    rows = {row[0].split(" ")[0]: row for row in path_tables()[0]}
    assert set(rows) == set(served())
    for path, route in served().items():
        request = rows[path][1]
        if "section" in request:
            continue
        fields = {field.encode_name for field in msgspec.structs.fields(route.operation.request)}
        assert set(re.findall(r"`(\w+)`", request)) == fields, path


def test_every_operation_stands_in_a_heading_that_says_whether_it_is_additive() -> None:
    additive = {row[0].split(" ")[0] for row in path_tables()[0] if "(additive" in row[0]}
    headings = re.findall(r"^### 4\.[\d.]+ (/.*)$", TEXT, re.MULTILINE)
    paths = [re.findall(r"/[\w/]+", heading) for heading in headings]
    assert sorted(path for found in paths for path in found) == sorted(served())
    assert [heading.endswith("(additive)") for heading in headings] == [additive.issuperset(found) for found in paths]


def test_the_sdk_has_a_function_for_every_operation() -> None:
    functions = [value for value in vars(sdk_operations).values() if isinstance(value, FunctionType)]
    called = {name for function in functions for name in function.__code__.co_names}
    declared = {name for name, value in vars(wire).items() if isinstance(value, wire.Operation)}
    assert declared - called == {"REVOKE"}, "it does the same as CANCEL"


def test_the_specification_promises_only_what_exists() -> None:
    """No table of plans, no header of answers that none carries."""
    assert "planned" not in TEXT.lower()
    assert not {"Deprecation", "Sunset"} & set(re.findall(r"\w+", TEXT))
    assert len(path_tables()) == 1


def test_a_code_that_no_refusal_has_is_called_reserved() -> None:
    raised = {one.code for one in refusal.Refusal.__subclasses__()} | {"000000", "000001"}
    text = {row[0]: row[2] for head, rows in TABLES if head[0] == "code" for row in rows}
    assert {code for code, said in text.items() if said.startswith("Reserved")} == set(text) - raised


def test_profile_filters_are_those_of_the_contract() -> None:
    section = TEXT.partition("### 4.8 ")[2].partition("```json")[0].partition("Ids that name")[0]
    fields = {field.encode_name for field in msgspec.structs.fields(calls.ProfileList)}
    assert set(re.findall(r"`(\w+)`", section.partition("must match:")[2])) == fields


def test_moves_use_the_words_of_their_field() -> None:
    for section, name in (("3.2", "OrderStatus"), ("3.3", "ItemStatus"), ("3.4", "LifecycleStatus")):
        text = TEXT.partition(f"### {section} ")[2].partition("\n###")[0]
        moves = text.partition("| From |")[2]
        ends = [cell for line in moves.splitlines() if line.startswith("|") for cell in line.split("|")[1:4:2]]
        named = set(re.findall(r"\b[A-Z_]{4,}\b", " ".join(ends)))
        assert named <= set(in_code(name))
        assert named == set(in_code(name)), f"no move of {section} reaches {set(in_code(name)) - named}"


def test_scripted_packages_are_those_of_the_test_catalogue() -> None:
    catalogue = {package.package_code for package in generate.catalogue("test")}
    scripted = set(words("packageCode")) | set(words("TOPUP packageCode"))
    assert scripted == {code for code in catalogue if code.startswith("TEST-")}


def test_limits_are_those_of_the_code() -> None:
    limits = dict(table("Limit"))
    assert f"({calls.MAX_BODY_BYTES} bytes)" in limits["Body"]
    assert f"{calls.MAX_PROFILES_PER_ORDER} profiles" in limits["Order"]
    assert str(len(backoff.SCHEDULE_SECONDS)) in limits["Webhook attempts"]
    assert "5 s, 30 s, 2 min, 10 min, 1 h, 6 h and 24 h" in TEXT
    assert backoff.SCHEDULE_SECONDS == (0, 5, 30, 120, 600, 3_600, 21_600, 86_400)


def test_the_order_of_an_orders_refusals_is_that_of_the_route() -> None:
    text = TEXT.partition("**Refusals are checked in this order:**")[2].partition(". Nothing")[0]
    assert re.findall(r"`(\d{6})`", text) == list(served()["/esim/order"].refusals)


def blocks() -> list[str]:
    return re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block[:40])
def test_examples_are_json_of_the_contract(block: str) -> None:
    value = json.loads(block)
    if "code" in value:
        msgspec.convert(value, Envelope[dict])
    if "eventType" in value:
        msgspec.convert(value, Snapshot)
    if "orderId" in value.get("data", {}):
        read = msgspec.convert(value["data"], Snapshot, strict=False)
        assert len(read.items) == 1


def test_words_of_delivery_are_the_rules_own() -> None:
    """What fulfillment writes on a new profile are raw words of the table."""
    codes = delivery.Codes(iccid="", activation_code="", qr_token="")
    assert codes.esim_status in words("esimStatus")
    assert codes.smdp_status in words("smdpStatus")


def test_no_place_outside_the_repository_is_named() -> None:
    for file in paths.DOCS.rglob("*.md"):
        assert not re.search(r"/(?:tmp|root)/", file.read_text()), file
