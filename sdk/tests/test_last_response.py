"""What a client keeps of its last answer, and what it says once it is closed or signs with a wrong secret."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Literal, get_args, get_origin, get_type_hints

import httpx2
import msgspec
import pytest

import esim_dealer
from esim_dealer import AsyncDealer, ClientClosed, Dealer, DealerError, NotFound, Profile, Snapshot, WrongSignature
from esim_dealer.wire.operations import OPERATIONS

from .conftest import APP_KEY, APP_SECRET, URL, Either, Service, packages, refusal, snapshot, success

HEALTH = {"status": "UP", "tenantId": "1", "clientName": "Acme"}


async def test_the_last_response_has_the_ids_and_the_rate_limit(dealer: Either, service: Service):
    answer = success(HEALTH)
    answer.headers.update({"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "19"})
    service.answers("/health", answer)
    assert dealer.dealer.last_response is None
    await dealer.health()
    last = dealer.dealer.last_response
    assert last.request_id == service.requests[-1].headers["RT-RequestID"]
    assert (last.trace_id, last.http_status, last.rate_limit, last.rate_remaining) == ("trace-1", 200, 10, 19)


async def test_a_call_without_an_answer_leaves_none(dealer: Either, service: Service):
    service.answers("/health", success(HEALTH), httpx2.ReadError("cut"))
    await dealer.health()
    with pytest.raises(DealerError):
        await dealer.health()
    assert dealer.dealer.last_response is None


async def test_a_refusal_is_a_last_response_too(dealer: Either, service: Service):
    service.answers("/esim/query", refusal("310272", 404))
    with pytest.raises(NotFound) as caught:
        await dealer.query("D1")
    last = dealer.dealer.last_response
    assert (last.request_id, last.http_status, last.rate_limit) == (caught.value.request_id, 404, None)


async def test_each_thread_and_each_task_has_its_own(service: Service):
    service.answers("/health", success(HEALTH))
    with Dealer(URL, APP_KEY, APP_SECRET, transport=httpx2.MockTransport(service)) as dealer:
        dealer.health()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(dealer.last_response))
        thread.start()
        thread.join()
        assert seen == [None] and dealer.last_response is not None
    async with AsyncDealer(URL, APP_KEY, APP_SECRET, transport=httpx2.MockTransport(service)) as dealer:

        async def own() -> str:
            await dealer.health()
            assert dealer.last_response
            return dealer.last_response.request_id

        assert len(set(await asyncio.gather(own(), own()))) == 2
        assert dealer.last_response is None


async def test_a_package_that_there_is_not_has_the_ids_of_the_call(dealer: Either, service: Service):
    service.answers("/package/list", success(packages()))
    with pytest.raises(NotFound) as caught:
        await dealer.package("NONE")
    assert (caught.value.code, caught.value.trace_id) == ("310241", "trace-1")
    assert caught.value.request_id == service.requests[-1].headers["RT-RequestID"]


async def test_a_closed_client_raises_an_error_of_this_tree(connect: Callable[..., Either], service: Service):
    dealer = connect()
    await (dealer.close() if isinstance(dealer.dealer, Dealer) else dealer.aclose())
    with pytest.raises(ClientClosed) as caught:
        await dealer.health()
    assert isinstance(caught.value, DealerError) and service.requests == []


async def test_a_wrong_secret_says_what_to_check(connect: Callable[..., Either]):
    with pytest.raises(WrongSignature, match="check AppSecret"):
        await connect(app_secret="sk_test_other").health()


def test_the_package_tells_its_version():
    assert esim_dealer.__version__ == "0.1.0"


# Types


def test_what_every_order_answer_has_is_typed_as_present():
    required = {field.encode_name for field in msgspec.structs.fields(Snapshot) if field.required}
    assert {"orderNo", "payStatus", "deliveryStatus", "orderStatus", "amount", "items", "createTime"} <= required
    older = {name: value for name, value in snapshot().items() if name != "orderType"}
    assert msgspec.json.decode(msgspec.json.encode(older), type=Snapshot).order_type == "BASE"


def test_a_profile_has_the_id_that_other_answers_have():
    [profile] = msgspec.convert(snapshot(), Snapshot, strict=False).items[0].profiles or ()
    assert isinstance(profile, Profile) and (profile.profile_id, profile.id) == ("111", 111)


def test_words_are_open_to_a_type_checker_and_closed_in_the_schema():
    """`Open` is `Literal[...] | str` to a type checker; at run time the words stay, for decoding and documents."""
    assert set(get_args(get_type_hints(Snapshot)["pay_status"])) == {"PAID", "REFUNDED"}
    closed = [
        f"{struct.__name__}.{name}"
        for struct in {Snapshot, Profile, *(operation.answer for operation in OPERATIONS)}
        for name, hint in get_type_hints(struct).items()
        if get_origin(hint) is Literal and f"{name}: Open[" not in inspect.getsource(struct)
    ]
    assert closed == []
