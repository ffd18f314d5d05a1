"""Both clients against a service that verifies every signature."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import httpx2
import pytest

from esim_dealer import AsyncDealer, Dealer, Delivery, Line, OrderCheck, RetryPolicy, WebhookTest, errors
from esim_dealer.wire.snapshot import Snapshot

from .conftest import (
    APP_SECRET,
    NOON,
    Either,
    FakeClock,
    Service,
    deliveries,
    delivery,
    package,
    packages,
    refusal,
    snapshot,
    success,
)

HEALTH = {"status": "UP", "tenantId": "1", "clientName": "A"}
BALANCE = {
    "accountType": "BALANCE",
    "currency": "USD",
    "balance": "10.00",
    "creditLimit": "0.00",
    "availableBalance": "10.00",
    "lowBalanceThreshold": "5.00",
    "lowBalance": False,
    "updateTime": "2025-12-31T12:00:00Z",
}
LINES = [Line("TEST-OK", 1, "1.80")]
GONE = httpx2.ConnectError("no route")
LOST = httpx2.ReadTimeout("no answer")
WAITING = {"deliveryStatus": "PENDING", "orderStatus": "FULFILLING"}


# Each operation


async def test_health_and_balance(dealer: Either, service: Service):
    service.answers("/health", success(HEALTH))
    service.answers("/account/balance", success(BALANCE))
    assert (await dealer.health()).status == "UP"
    assert (await dealer.balance()).available_balance == "10.00"
    assert service.bodies("/health") == [{}]


async def test_regions(dealer: Either, service: Service):
    region = {"regionCode": "JP", "regionName": "Japan", "type": "COUNTRY", "continent": "Asia", "packageCount": 2}
    service.answers("/region/list", success({"regions": [region]}))
    assert (await dealer.regions(keyword="jap")).regions[0].region_name == "Japan"
    assert service.bodies("/region/list") == [{"keyword": "jap"}]


async def test_packages_sends_only_the_filters_given(dealer: Either, service: Service):
    service.answers("/package/list", success(packages(package())))
    since = datetime(2026, 1, 1, tzinfo=UTC)
    found = await dealer.packages(location_code="JP", updated_since=since, page_num=2)
    assert found.packages[0].package_code == "TEST-OK"
    wanted = {"locationCode": "JP", "updatedSince": "2026-01-01T00:00:00Z", "pager": {"pageNum": 2}}
    assert service.bodies("/package/list") == [wanted]


async def test_a_filter_that_does_not_exist_is_refused_here(dealer: Either):
    with pytest.raises(TypeError):
        await dealer.packages(colour="red")


async def test_a_time_without_time_zone_is_refused_here(dealer: Either):
    with pytest.raises(ValueError, match="start_time needs a time zone"):
        await dealer.orders(start_time=datetime(2026, 1, 1))


async def test_one_package_by_its_code(dealer: Either, service: Service):
    service.answers("/package/list", success(packages(package())))
    assert (await dealer.package("TEST-OK")).price == "1.80"
    with pytest.raises(errors.NotFound):
        await dealer.package("OTHER")


async def test_iteration_follows_the_cursor_to_the_last_page(dealer: Either, service: Service):
    first, last = packages(package("A"), package("B"), next="cursor-1"), packages(package("C"))
    service.answers("/package/list", success(first), success(last))
    found = await dealer.iter_packages(page_size=200, keyword="x")
    assert [each.package_code for each in found] == ["A", "B", "C"]
    assert service.bodies("/package/list") == [
        {"keyword": "x", "pager": {"pageSize": 200}},
        {"keyword": "x", "pager": {"pageSize": 200, "after": "cursor-1"}},
    ]


async def test_orders_and_profiles_iterate_too(dealer: Either, service: Service):
    pager = {"pageNum": 1, "pageSize": 200, "total": 1}
    profile = snapshot()["items"][0]["profiles"][0]
    record = {"orderNo": "D1", "transactionId": "T1", "itemNo": "11", "packageCode": "P", "profile": profile}
    service.answers("/esim/order/list", success({"orders": [snapshot()], "pager": pager}))
    service.answers("/esim/profile/list", success({"records": [record], "pager": pager}))
    assert [each.transaction_id for each in await dealer.iter_orders(order_status="COMPLETED")] == ["T1"]
    found = await dealer.iter_profiles(lifecycle_status=["DELIVERED", "ACTIVATED"])
    assert [each.profile.iccid for each in found] == ["8910300000000000017"]
    assert service.bodies("/esim/profile/list")[0]["lifecycleStatus"] == ["DELIVERED", "ACTIVATED"]
    assert (await dealer.orders()).pager.total == 1
    assert (await dealer.profiles(profile_id=111)).records[0].order_no == "D1"


async def test_order_is_the_snapshot(dealer: Either, service: Service):
    service.answers("/esim/order", success(snapshot(duplicate=False)))
    placed = await dealer.order("T1", [Line("TEST-OK", 2, "1.80")], remark="é")
    assert isinstance(placed, Snapshot)
    assert (placed.order_no, placed.duplicate, placed.refund_amount) == ("D251231120000000001", False, Decimal(0))
    assert service.bodies("/esim/order") == [
        {
            "transactionId": "T1",
            "amount": "3.60",
            "items": [{"packageCode": "TEST-OK", "quantity": 2, "price": "1.80"}],
            "remark": "é",
        }
    ]


def check(**changed: object) -> dict[str, object]:
    """A check of two TEST-OK; `changed` replaces or adds fields."""
    item = {"packageCode": "TEST-OK", "quantity": 2, "price": "1.80", "amount": "3.60", "availability": "AVAILABLE"}
    wallet = {"balance": "10.00", "creditLimit": "0.00", "availableBalance": "10.00"}
    return {"currency": "USD", "amount": "3.60", "items": [item], "duplicate": False, **wallet, **changed}


async def test_a_check_learns_the_prices_that_the_order_then_sends(dealer: Either, service: Service):
    service.answers("/esim/order/check", success(check(balanceAfter="6.40")))
    service.answers("/esim/order", success(snapshot()))
    told = await dealer.check_order([Line("TEST-OK", 2)])
    assert isinstance(told, OrderCheck)
    assert (told.amount, told.balance_after, bool(told.would_refuse)) == ("3.60", "6.40", False)
    assert service.bodies("/esim/order/check") == [{"items": [{"packageCode": "TEST-OK", "quantity": 2}]}]
    await dealer.order("T1", [Line.checked(item) for item in told.items])
    [sent] = service.bodies("/esim/order")
    assert (sent["amount"], sent["items"]) == (
        "3.60",
        [{"packageCode": "TEST-OK", "quantity": 2, "price": "1.80"}],
    )


async def test_a_check_sends_what_the_order_would_and_raises_no_refusal(dealer: Either, service: Service):
    refused = {"code": "200099", "message": "a later one", "data": {"expectedAmount": "3.60"}}
    service.answers("/esim/order/check", success(check(wouldRefuse=refused)))
    told = await dealer.check_order([Line("TEST-OK", 2, "1.70", 1)], "T1", "3.40", "USD")
    assert told.would_refuse and told.would_refuse.code == "200099"
    line = {"packageCode": "TEST-OK", "quantity": 2, "price": "1.70", "periodNum": 1}
    wanted = {"transactionId": "T1", "amount": "3.40", "items": [line], "currency": "USD"}
    assert service.bodies("/esim/order/check") == [wanted]


async def test_an_order_without_a_price_is_refused_here(dealer: Either):
    for amount in (None, "1.80"):
        with pytest.raises(ValueError, match="the line of TEST-OK has no price"):
            await dealer.order("T1", [Line("TEST-OK", 1)], amount)


async def test_query_needs_one_of_both_names(dealer: Either, service: Service):
    service.answers("/esim/query", success(snapshot()))
    assert (await dealer.query(transaction_id="T1")).order_no == "D251231120000000001"
    assert service.bodies("/esim/query") == [{"transactionId": "T1"}]
    with pytest.raises(ValueError, match="order_no"):
        await dealer.query()


async def test_removing_the_webhook_says_null(dealer: Either, service: Service):
    service.answers("/webhook/set", success({"callbackUrl": "", "enabled": False}))
    state = {"callbackUrl": "", "enabled": False, "state": "NOT_SET", "consecutiveFailures": 0}
    service.answers("/webhook/query", success(state))
    assert not (await dealer.set_webhook(None)).enabled
    assert service.bodies("/webhook/set") == [{"callbackUrl": None}]
    assert (await dealer.webhook()).state == "NOT_SET"


async def test_a_sample_event_is_asked_for_and_its_outcome_told(dealer: Either, service: Service):
    service.answers(
        "/webhook/test", success({"delivered": False, "httpStatus": 503, "durationMs": 7, "error": "STATUS"})
    )
    told = await dealer.test_webhook()
    assert isinstance(told, WebhookTest)
    assert (told.delivered, told.http_status, told.error) == (False, 503, "STATUS")
    assert service.bodies("/webhook/test") == [{}]


async def test_a_sample_event_without_a_callback_url_is_a_conflict(dealer: Either, service: Service):
    service.answers("/webhook/test", refusal("200002", 409))
    with pytest.raises(errors.Conflict):
        await dealer.test_webhook()


async def test_deliveries_show_their_attempts(dealer: Either, service: Service):
    service.answers("/webhook/delivery/list", success(deliveries(delivery())))
    since = datetime(2025, 12, 31, tzinfo=UTC)
    [found] = (await dealer.deliveries(order_no="D1", status="RETRY", start_time=since, page_size=5)).deliveries
    assert isinstance(found, Delivery)
    assert (found.delivery_id, found.order_version, found.change_hints) == ("w-1", 3, ("ICCID_READY",))
    assert [(each.number, each.http_status or None, each.error) for each in found.attempts] == [
        (1, 500, "STATUS"),
        (2, None, "CONNECT"),
    ]
    wanted = {"orderNo": "D1", "status": "RETRY", "startTime": "2025-12-31T00:00:00Z", "pager": {"pageSize": 5}}
    assert service.bodies("/webhook/delivery/list") == [wanted]


async def test_deliveries_iterate_and_hand_later_words_on(dealer: Either, service: Service):
    first = deliveries(delivery("w-2", status="PARKED", trigger="AGENT"), next="cursor-1")
    service.answers("/webhook/delivery/list", success(first), success(deliveries(delivery("w-1"))))
    found = await dealer.iter_deliveries(event_type="DELIVERY_UPDATED")
    assert [(each.delivery_id, each.status) for each in found] == [("w-2", "PARKED"), ("w-1", "RETRY")]
    assert service.bodies("/webhook/delivery/list") == [
        {"eventType": "DELIVERY_UPDATED", "pager": {"pageSize": 200}},
        {"eventType": "DELIVERY_UPDATED", "pager": {"pageSize": 200, "after": "cursor-1"}},
    ]


async def test_resend_names_the_delivery(dealer: Either, service: Service):
    service.answers("/webhook/delivery/resend", success(delivery(attemptCount=9)))
    assert (await dealer.resend("w-1")).attempt_count == 9
    assert service.bodies("/webhook/delivery/resend") == [{"deliveryId": "w-1"}]


async def test_an_order_with_words_of_a_later_version_is_not_lost(dealer: Either, service: Service):
    service.answers("/esim/order", success(snapshot(orderStatus="PAUSED", somethingNew=1)))
    placed = await dealer.order("T1", LINES)
    assert isinstance(placed, Snapshot)
    assert placed.order_status == "PAUSED"


# Refusals


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("200007", 402, errors.InsufficientBalance),
        ("200005", 422, errors.PriceChanged),
        ("200011", 409, errors.OutOfStock),
        ("310402", 409, errors.TransactionIdReused),
        ("000105", 400, errors.InvalidRequest),
        ("777777", 400, errors.DealerError),
    ],
)
async def test_a_refusal_is_raised_at_once(dealer: Either, service: Service, code: str, status: int, kind: type):
    service.answers("/esim/order", refusal(code, status))
    with pytest.raises(kind) as refused:
        await dealer.order("T1", LINES)
    assert type(refused.value) is kind
    assert len(service.requests) == 1
    assert str(refused.value).startswith(service.requests[0].headers["RT-RequestID"])
    assert refused.value.trace_id == "trace-1"


async def test_a_wrong_secret_is_an_authentication_error(connect: Callable[..., Either], service: Service):
    with pytest.raises(errors.AuthenticationError) as refused:
        await connect(app_secret="another").health()
    assert refused.value.code == "101003"


async def test_an_unknown_app_key_is_an_authentication_error(connect: Callable[..., Either]):
    with pytest.raises(errors.AuthenticationError):
        await connect(app_key="ak_test_0002").health()


# Trying again


async def test_each_retry_has_a_fresh_request_id_and_the_same_transaction_id(
    dealer: Either, service: Service, clock: FakeClock
):
    service.answers("/esim/order", GONE, LOST, success(snapshot(duplicate=True)))
    assert (await dealer.order("T1", LINES)).duplicate
    assert len({request.headers["RT-RequestID"] for request in service.requests}) == 3
    assert len({request.headers["RT-Timestamp"] for request in service.requests}) == 3
    assert {request.content for request in service.requests} == {service.requests[0].content}
    assert clock.pauses == [0.1875, 0.375]


@pytest.mark.parametrize(
    "passing",
    [
        refusal("900001", 503, **{"Retry-After": "2"}),
        refusal("101013", 429, **{"Retry-After": "2"}),
        httpx2.Response(502, text="<html>", headers={"Retry-After": "2"}),
    ],
    ids=["900001", "101013", "502 of a proxy"],
)
async def test_what_passes_is_waited_for(dealer: Either, service: Service, clock: FakeClock, passing: httpx2.Response):
    service.answers("/health", passing, success(HEALTH))
    assert (await dealer.health()).status == "UP"
    assert clock.pauses == [2.125]


async def test_retries_are_bounded(dealer: Either, service: Service):
    service.answers("/health", refusal("900001", 503))
    with pytest.raises(errors.ServiceUnavailable):
        await dealer.health()
    assert len(service.requests) == 4


async def test_no_attempt_starts_past_the_deadline(connect: Callable[..., Either], service: Service):
    service.answers("/health", refusal("900001", 503, **{"Retry-After": "40"}))
    with pytest.raises(errors.ServiceUnavailable) as busy:
        await connect(retry=RetryPolicy(deadline_seconds=60)).health()
    assert busy.value.retry_after == 40
    assert len(service.requests) == 2


@pytest.mark.parametrize("skew_seconds", [-3600, 3600, 86_400 * 400])
async def test_clock_skew_is_corrected_once_and_remembered(dealer: Either, service: Service, skew_seconds: float):
    service.skew_seconds = skew_seconds
    service.answers("/health", success(HEALTH))
    await dealer.health()
    await dealer.health()
    assert len(service.requests) == 3
    assert int(service.requests[-1].headers["RT-Timestamp"]) == (NOON + skew_seconds) * 1000


async def test_clock_skew_that_stays_is_an_error(dealer: Either, service: Service):
    service.answers("/health", refusal("101001", 401, {"serverTime": int(NOON * 1000)}))
    with pytest.raises(errors.ClockSkew):
        await dealer.health()
    assert len(service.requests) == 2


# Unknown outcomes


async def test_an_order_never_answered_has_an_unknown_outcome(dealer: Either, service: Service):
    service.answers("/esim/order", LOST)
    with pytest.raises(errors.OutcomeUnknown) as unknown:
        await dealer.order("T1", LINES)
    assert unknown.value.transaction_id == "T1"
    assert "repeat it with the same transactionId" in str(unknown.value)
    assert isinstance(unknown.value.__cause__, errors.ConnectionFailed)


async def test_a_recharge_never_answered_has_an_unknown_outcome(dealer: Either, service: Service):
    service.answers("/esim/topup", LOST)
    with pytest.raises(errors.OutcomeUnknown) as unknown:
        await dealer.recharge("T1", "TEST-TOPUP-OK", "1.00", iccid="8910300000000000017")
    assert unknown.value.transaction_id == "T1"


async def test_a_refund_with_an_id_never_answered_has_an_unknown_outcome(dealer: Either, service: Service):
    service.answers("/esim/refund", LOST, refusal("101007", 403))
    with pytest.raises(errors.OutcomeUnknown, match="same refundTransactionId") as unknown:
        await dealer.refund("D1", refund_transaction_id="R1")
    assert unknown.value.transaction_id == "R1"


async def test_a_refund_without_an_id_tells_what_came_last(dealer: Either, service: Service):
    service.answers("/esim/refund", LOST, refusal("101007", 403))
    with pytest.raises(errors.PermissionDenied):
        await dealer.refund("D1")


async def test_an_order_that_never_left_is_a_failed_connection(dealer: Either, service: Service):
    service.answers("/esim/order", GONE)
    with pytest.raises(errors.ConnectionFailed):
        await dealer.order("T1", LINES)


async def test_a_later_busy_does_not_settle_an_earlier_lost_answer(dealer: Either, service: Service):
    service.answers("/esim/order", LOST, refusal("900001", 503))
    with pytest.raises(errors.OutcomeUnknown) as unknown:
        await dealer.order("T1", LINES)
    assert unknown.value.code == "900001"


async def test_a_later_business_refusal_settles_an_earlier_lost_answer(dealer: Either, service: Service):
    service.answers("/esim/order", LOST, refusal("200007", 402))
    with pytest.raises(errors.InsufficientBalance):
        await dealer.order("T1", LINES)


async def test_the_services_own_unknown_outcome_is_told(dealer: Either, service: Service):
    service.answers("/esim/order", refusal("900001", 503, {"outcome": "UNKNOWN"}))
    with pytest.raises(errors.OutcomeUnknown) as unknown:
        await dealer.order("T1", LINES)
    assert unknown.value.transaction_id == "T1"
    assert len(service.requests) == 4


async def test_a_read_never_answered_is_just_a_failed_connection(dealer: Either, service: Service):
    service.answers("/esim/query", LOST)
    with pytest.raises(errors.ConnectionFailed):
        await dealer.query("D1")


# Waiting for delivery


async def test_waiting_polls_at_growing_intervals(dealer: Either, service: Service, clock: FakeClock):
    service.answers("/esim/query", *[success(snapshot(**WAITING))] * 6, success(snapshot()))
    order = await dealer.wait_for_delivery("D251231120000000001", poll=0.5)
    assert order.delivery_status == "DELIVERED"
    assert clock.pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


async def test_waiting_in_vain_gives_the_last_snapshot(dealer: Either, service: Service, clock: FakeClock):
    service.answers("/esim/query", success(snapshot(**WAITING)))
    with pytest.raises(errors.DeliveryTimedOut) as late:
        await dealer.wait_for_delivery(transaction_id="T1", timeout=10)
    assert late.value.snapshot.order_status == "FULFILLING"
    assert sum(clock.pauses) == 10


async def test_a_failed_delivery_is_raised_with_its_snapshot(dealer: Either, service: Service):
    service.answers("/esim/query", success(snapshot(deliveryStatus="FAILED", orderStatus="REFUNDED")))
    with pytest.raises(errors.DeliveryFailed) as failed:
        await dealer.wait_for_delivery("D1")
    assert failed.value.snapshot.order_status == "REFUNDED"


async def test_waiting_outlives_a_service_that_is_away_for_a_minute(dealer: Either, service: Service):
    service.answers("/esim/query", *[GONE] * 20, success(snapshot()))
    assert (await dealer.wait_for_delivery("D1", timeout=120)).delivery_status == "DELIVERED"


async def test_waiting_for_a_service_that_stays_away_ends(dealer: Either, service: Service):
    service.answers("/esim/query", GONE)
    with pytest.raises(errors.DeliveryTimedOut) as late:
        await dealer.wait_for_delivery("D1", timeout=10)
    assert late.value.snapshot is None
    assert isinstance(late.value.__cause__, errors.ConnectionFailed)


async def test_waiting_for_an_order_that_does_not_exist_ends_at_once(dealer: Either, service: Service):
    service.answers("/esim/query", refusal("310272", 404))
    with pytest.raises(errors.NotFound):
        await dealer.wait_for_delivery("D1")


# Credentials and addresses


@pytest.mark.parametrize("url", ["https://api.dealer.test/", "https://api.dealer.test/open-api/v1"])
async def test_the_base_address_is_taken_with_or_without_the_prefix(
    connect: Callable[..., Either], service: Service, url: str
):
    service.answers("/health", success(HEALTH))
    await connect(url=url).health()
    assert str(service.requests[0].url) == "https://api.dealer.test/open-api/v1/health"


@pytest.mark.parametrize("url", ["api.dealer.test", "ftp://api.dealer.test", "https://", "https://a.test?x=1"])
def test_an_address_that_is_none_is_refused(connect: Callable[..., Either], url: str):
    with pytest.raises(errors.NotConfigured):
        connect(url=url)


@pytest.mark.parametrize("kind", [Dealer, AsyncDealer])
def test_missing_credentials_are_named(kind: type):
    with pytest.raises(errors.NotConfigured, match="ESIM_DEALER_"):
        kind("https://api.dealer.test", "ak_test_0001", "")


async def test_the_secret_appears_nowhere(connect: Callable[..., Either], service: Service, caplog):
    caplog.set_level(0)
    dealer = connect()
    service.answers("/health", LOST)
    with pytest.raises(errors.ConnectionFailed) as failed:
        await dealer.health()
    inner = dealer.dealer._exchange
    seen = [
        repr(dealer.dealer),
        repr(inner.credentials),
        repr(inner),
        str(failed.value),
        repr(failed.value),
        caplog.text,
    ]
    assert "attempt 1 failed" in caplog.text
    assert not any(APP_SECRET in text for text in seen)
    assert not any(APP_SECRET in str(request.headers) for request in service.requests)


# Money after the sale


def refunded(**changed: object) -> dict[str, object]:
    item = {"itemNo": "1", "refundStatus": "COMPLETED", "profileIds": [7], "iccids": ["8900051033665037321"]}
    return {
        "refundNo": "R251231120000000001",
        "orderNo": "D1",
        "transactionId": "T1",
        "status": "REFUNDED",
        "refundAmount": "1.80",
        "totalRefundAmount": "1.80",
        "currency": "USD",
        "items": [item],
        "duplicate": False,
    } | changed


async def test_a_refund_names_orders_items_and_profiles(dealer: Either, service: Service):
    service.answers("/esim/refund", success(refunded()))
    await dealer.refund("D1")
    await dealer.refund(transaction_id="T1", items={"1": None}, refund_transaction_id="r-1", remark="late")
    found = await dealer.refund("D1", items={"1": [7, "8", "8900051033665037321"]})
    assert (found.status, found.refund_amount, found.items[0].profile_ids) == ("REFUNDED", "1.80", (7,))
    assert service.bodies("/esim/refund") == [
        {"orderNo": "D1"},
        {"transactionId": "T1", "remark": "late", "items": [{"itemNo": "1"}], "refundTransactionId": "r-1"},
        {
            "orderNo": "D1",
            "items": [
                {"itemNo": "1", "profiles": [{"profileId": 7}, {"profileId": "8"}, {"iccid": "8900051033665037321"}]}
            ],
        },
    ]


@pytest.mark.parametrize("call", [{}, {"order_no": "D1", "items": {}}])
async def test_a_refund_of_nothing_is_refused_here(dealer: Either, service: Service, call: dict):
    with pytest.raises(ValueError):
        await dealer.refund(**call)
    assert service.requests == []


async def test_waiting_for_a_refund_ends_when_none_is_in_progress(dealer: Either, service: Service, clock: FakeClock):
    under_way = success(snapshot(orderStatus="REFUNDING"))
    service.answers("/esim/query", under_way, under_way, success(snapshot(orderStatus="REFUNDED")))
    assert (await dealer.wait_for_refund("D1")).order_status == "REFUNDED"
    assert clock.pauses == [0.5, 1.0]


async def test_a_refund_that_waits_for_a_person_times_out(dealer: Either, service: Service):
    service.answers("/esim/query", success(snapshot(orderStatus="REFUNDING")))
    with pytest.raises(errors.DeliveryTimedOut, match="not settled within 10 s"):
        await dealer.wait_for_refund("D1", timeout=10)


async def test_a_profile_is_cancelled_by_one_of_its_names(dealer: Either, service: Service):
    answer = {"orderNo": "D1", "itemNo": "1", "profileId": 7, "asyncStatus": "PENDING", "cancelled": False}
    service.answers("/esim/profile/cancel", success(answer | {"lifecycleStatus": "DELIVERED"}))
    assert (await dealer.cancel(7)).async_status == "PENDING"
    for wrong in ({}, {"profile_id": 7, "iccid": "8900051033665037321"}):
        with pytest.raises(ValueError):
            await dealer.cancel(**wrong)
    assert service.bodies("/esim/profile/cancel") == [{"profileId": 7}]


async def test_a_profile_is_suspended_and_unsuspended(dealer: Either, service: Service):
    answer = {"orderNo": "D1", "itemNo": "1", "profileId": 7, "iccid": "8900051033665037321", "cancelled": False}
    answer |= {"lifecycleStatus": "ACTIVATED"}
    service.answers("/esim/profile/suspend", success(answer | {"asyncStatus": "PENDING", "suspended": False}))
    service.answers("/esim/profile/unsuspend", success(answer | {"asyncStatus": "COMPLETED", "suspended": False}))
    assert (await dealer.suspend(7)).async_status == "PENDING"
    assert (await dealer.unsuspend(iccid="8900051033665037321")).suspended is False
    for wrong in ({}, {"profile_id": 7, "iccid": "8900051033665037321"}):
        for call in (dealer.suspend, dealer.unsuspend):
            with pytest.raises(ValueError):
                await call(**wrong)
    assert service.bodies("/esim/profile/suspend") == [{"profileId": 7}]
    assert service.bodies("/esim/profile/unsuspend") == [{"iccid": "8900051033665037321"}]


async def test_statement_and_topups(dealer: Either, service: Service):
    entry = {"entryNo": "1", "entryType": "ADJUST", "amount": "10.00", "balanceAfter": "10.00", "currency": "USD"}
    entries = [entry | {"createTime": "2025-12-31T12:00:00Z"}]
    service.answers(
        "/account/statement", success({"entries": entries, "pager": {"pageNum": 1, "pageSize": 200, "total": 1}})
    )
    assert [one.amount for one in await dealer.iter_statement(entry_type="ADJUST")] == ["10.00"]
    topup = {"topupNo": "T1", "transactionId": "u-1", "amount": "50.00", "currency": "USD", "status": "PENDING"}
    service.answers("/account/topup", success(topup | {"createTime": "2025-12-31T12:00:00Z", "duplicate": False}))
    service.answers("/account/topup/query", success(topup | {"createTime": "2025-12-31T12:00:00Z", "duplicate": False}))
    assert (await dealer.topup("u-1", "50", pay_method="CARD")).status == "PENDING"
    assert (await dealer.query_topup("T1")).topup_no == "T1"
    cancelled = topup | {"status": "CANCELLED", "createTime": "2025-12-31T12:00:00Z", "duplicate": False}
    service.answers("/account/topup/cancel", success(cancelled))
    assert (await dealer.cancel_topup(transaction_id="u-1")).status == "CANCELLED"
    assert service.bodies("/account/topup/cancel") == [{"transactionId": "u-1"}]
    for find in (dealer.query_topup, dealer.cancel_topup):
        with pytest.raises(ValueError):
            await find()
    assert service.bodies("/account/topup") == [{"transactionId": "u-1", "amount": "50", "payMethod": "CARD"}]
