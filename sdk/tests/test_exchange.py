"""Without any I/O: what a reply means, and whether and when a call is tried again."""

from datetime import UTC, datetime

import pytest

from esim_dealer import errors
from esim_dealer.exchange import NoReply, Reply, RetryPolicy, delivered, read, retry_delay, server_time, settles
from esim_dealer.wire import operations
from esim_dealer.wire.calls import Health
from esim_dealer.wire.snapshot import Snapshot

POLICY = RetryPolicy(retries=3, first_delay_seconds=0.25, longest_delay_seconds=8.0)
HEALTHY = b'{"code":"000000","message":"success","data":{"status":"UP","tenantId":"1","clientName":"A"}}'


def reply(body: bytes, status: int = 200, **headers: str) -> Reply:
    return Reply(status, headers, body)


def test_success_is_the_operations_result():
    assert read(operations.HEALTH, "R", reply(HEALTHY)) == Health(status="UP", tenant_id="1", client_name="A")


def test_refusal_is_an_error_with_everything_known_about_it():
    body = b'{"code":"101013","message":"slower","data":{"limit":10}}'
    error = read(operations.HEALTH, "R", Reply(429, {"X-Trace-Id": "X", "Retry-After": "2"}, body))
    assert isinstance(error, errors.RateLimited)
    assert (error.code, error.message, error.request_id, error.trace_id) == ("101013", "slower", "R", "X")
    assert (error.http_status, error.retry_after, error.data) == (429, 2.0, {"limit": 10})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code":1,"message":"m"}', b"{}", b"\xff", HEALTHY[:-1]])
def test_what_is_not_the_envelope_is_unreadable(body: bytes):
    error = read(operations.HEALTH, "R", reply(body, 200))
    assert isinstance(error, errors.UnreadableAnswer)
    assert not error.transient
    assert error.unsettled


def test_success_that_is_not_understood_keeps_its_data():
    body = b'{"code":"000000","message":"success","data":{"orderNo":"D1"}}'
    error = read(operations.ORDER, "R", reply(body))
    assert isinstance(error, errors.UnreadableAnswer)
    assert error.data == {"orderNo": "D1"}
    assert not error.unsettled
    assert settles(error)


def test_words_of_a_later_version_are_handed_on():
    body = HEALTHY.replace(b'"UP"', b'"DEGRADED"')
    health = read(operations.HEALTH, "R", reply(body))
    assert isinstance(health, Health)
    assert health.status == "DEGRADED"


def test_no_reply_tells_why_and_whether_it_was_sent():
    error = read(operations.HEALTH, "R", NoReply(OSError("refused"), sent=False))
    assert isinstance(error, errors.ConnectionFailed)
    assert str(error) == "R: no answer from the service: refused"
    assert not error.unsettled
    assert read(operations.HEALTH, "R", NoReply(OSError(), sent=True)).unsettled


UNSENT = errors.ConnectionFailed("unreachable")
BUSY = errors.ServiceUnavailable("busy", code="900001", http_status=503)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (UNSENT, True),
        (BUSY, True),
        (errors.RateLimited("slower", code="101013", http_status=429), True),
        (errors.OutcomeUnknown("lost", code="900001", http_status=503), True),
        (errors.RequestIdUsed("used", code="101004", http_status=401), True),
        (errors.UnreadableAnswer("gateway", http_status=502), True),
        (errors.UnreadableAnswer("proxy's limit", http_status=429), True),
        (errors.UnreadableAnswer("page", http_status=404), False),
        (errors.UnreadableAnswer("page", http_status=200), False),
        (errors.UnreadableAnswer("misfit", code="000000", http_status=200), False),
        (errors.ServerError("bug", code="000001", http_status=500), False),
        (errors.UpstreamFailed("supplier", code="900002", http_status=502), False),
        (errors.ClockSkew("skew", code="101001", http_status=401), False),
        (errors.InsufficientBalance("poor", code="200007", http_status=402), False),
        (errors.DealerError("new", code="777777", http_status=418), False),
    ],
)
def test_only_what_may_pass_is_tried_again(error: errors.DealerError, again: bool):
    assert (retry_delay(POLICY, 1, error, 0.5) is not None) == again


@pytest.mark.parametrize(
    ("attempt", "fraction", "delay"),
    [(1, 0.0, 0.125), (1, 1.0, 0.25), (2, 1.0, 0.5), (3, 0.0, 0.5), (3, 1.0, 1.0), (4, 0.5, None)],
)
def test_delays_double_with_jitter_until_the_retries_are_used_up(attempt: int, fraction: float, delay: float | None):
    assert retry_delay(POLICY, attempt, UNSENT, fraction) == delay


def test_delays_have_a_ceiling():
    assert retry_delay(RetryPolicy(retries=50), 40, UNSENT, 1.0) == 8.0


def test_retry_after_is_never_undercut():
    asked = errors.ServiceUnavailable("busy", code="900001", retry_after=5.0)
    assert [retry_delay(POLICY, 1, asked, fraction) for fraction in (0.0, 1.0)] == [5.0, 5.25]


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("0", 0.0), (None, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("٣", None)]
)
def test_retry_after_is_read_as_seconds(header: str | None, seconds: float | None):
    body = b'{"code":"900001","message":"busy","data":{}}'
    error = read(operations.HEALTH, "R", Reply(503, {"Retry-After": header} if header else {}, body))
    assert isinstance(error, errors.DealerError)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (1767225600123, 1767225600.123),
        ("1767225600123", 1767225600.123),
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01T01:00:00+01:00", 1767225600.0),
        ("soon", None),
        (None, None),
        (True, None),
        ([], None),
    ],
)
def test_server_time_is_milliseconds_or_rfc_3339(given: object, seconds: float | None):
    assert server_time({"serverTime": given}) == seconds


def order(delivery_status: str, order_status: str) -> Snapshot:
    return Snapshot(
        transaction_id="T1",
        order_no="D1",
        order_id=1,
        pay_status="PAID",
        delivery_status=delivery_status,
        order_status=order_status,
        currency="USD",
        amount="1.80",
        items=(),
        create_time=datetime(2025, 12, 31, tzinfo=UTC),
        update_time=datetime(2025, 12, 31, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("delivery_status", "order_status", "there"),
    [
        ("PENDING", "PAID", False),
        ("PENDING", "FULFILLING", False),
        ("PARTIAL", "FULFILLING", False),
        ("PARTIAL", "REFUNDING", False),
        ("DELIVERED", "COMPLETED", True),
        ("DELIVERED", "REFUNDING", True),
    ],
)
def test_delivered_once_deliverystatus_says_so(delivery_status: str, order_status: str, there: bool):
    assert delivered(order(delivery_status, order_status)) is there


@pytest.mark.parametrize(
    ("delivery_status", "order_status"),
    [("FAILED", "FULFILLING"), ("FAILED", "REFUNDED"), ("PENDING", "REFUNDED"), ("PARTIAL", "COMPLETED")],
)
def test_an_order_that_ends_undelivered_has_failed(delivery_status: str, order_status: str):
    with pytest.raises(errors.DeliveryFailed) as failed:
        delivered(order(delivery_status, order_status))
    assert failed.value.snapshot == order(delivery_status, order_status)
