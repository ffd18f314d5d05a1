"""Does the OpenAPI document say which parameters need or exclude each other, exactly as the service does?"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from dealer_server.api.openapi import generator
from support.api_client import ApiClient
from support.operations import ROUTES

DOCUMENT = json.loads(msgspec.json.encode(generator.document(ROUTES, base_url="https://api.example.com", version="1")))
NOBODYS = {
    "orderNo": "D200101000000000001",
    "transactionId": "nobodys",
    "topupNo": "T200101000000000001",
    "profileId": 1,
    "iccid": "8999900000000000009",
}
ORDER, PROFILE = ("orderNo", "transactionId"), ("profileId", "iccid")
# Each operation that takes one of two names, and what else it needs.
CHOICES: list[tuple[str, tuple[str, str], dict[str, Any]]] = [
    ("/esim/query", ORDER, {}),
    ("/esim/refund", ORDER, {}),
    ("/esim/profile/cancel", PROFILE, {}),
    ("/esim/profile/revoke", PROFILE, {}),
    ("/esim/profile/suspend", PROFILE, {}),
    ("/esim/profile/plans", PROFILE, {}),
    (
        "/esim/topup",
        PROFILE,
        {"transactionId": "t-1", "packageCode": "TEST-TOPUP-OK", "price": "1.00", "amount": "1.00"},
    ),
    ("/esim/profile/sms", PROFILE, {"transactionId": "t-1", "message": "hello"}),
    ("/esim/profile/usage", PROFILE, {}),
    ("/esim/profile/unsuspend", PROFILE, {}),
    ("/test/profile/advance", PROFILE, {"step": "DOWNLOAD"}),
    ("/account/topup/query", ("topupNo", "transactionId"), {}),
    ("/account/topup/cancel", ("topupNo", "transactionId"), {}),
]
LEFT_OUT = object()


def validator(path: str) -> Draft202012Validator:
    operation = DOCUMENT["paths"][f"/open-api/v1{path}"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def bodies(names: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """Each of the two left out, null and given, in every combination."""
    for values in itertools.product(*((LEFT_OUT, None, NOBODYS[name]) for name in names)):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not LEFT_OUT}


@pytest.mark.parametrize(("path", "names", "rest"), CHOICES, ids=[path for path, _, _ in CHOICES])
async def test_the_document_accepts_what_the_service_accepts(
    dealer: ApiClient, path: str, names: tuple[str, str], rest: dict[str, Any]
) -> None:
    valid = validator(path)
    for body in bodies(names):
        reply = await dealer.post(path, body | rest)
        assert reply.code in ("000105", "000111", "310272", "310404", "310405")
        assert valid.is_valid(body | rest) == (reply.code not in ("000105", "000111")), (body, reply)


async def test_a_profile_of_a_refund_is_named_by_one_of_two_ids_or_both(dealer: ApiClient) -> None:
    order = await dealer.delivered((await dealer.order()).data["orderNo"])
    (item,) = order["items"]
    valid = validator("/esim/refund")
    for named in bodies(PROFILE):
        body = {"orderNo": order["orderNo"], "items": [{"itemNo": item["itemNo"], "profiles": [named]}]}
        reply = await dealer.post("/esim/refund", body)
        assert reply.code in ("000105", "310403")
        assert valid.is_valid(body) == (reply.code == "310403"), (named, reply)


def test_a_call_that_must_name_something_must_have_a_body() -> None:
    """An empty body counts as `{}`: it is enough only where nothing is required."""
    for path, item in DOCUMENT["paths"].items():
        assert item["post"]["requestBody"]["required"] == (
            not validator(path.removeprefix("/open-api/v1")).is_valid({})
        ), path
