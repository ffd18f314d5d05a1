"""The service's double: verifies signatures by its own arithmetic, and answers what a test lays out."""

import hashlib
import hmac
import inspect
import json
import signal
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from esim_dealer import AsyncDealer, Clock, Dealer, RetryPolicy
from esim_dealer.wire.signing import signed_headers

URL = "https://api.dealer.test"
APP_KEY = "ak_test_0001"
APP_SECRET = "sk_test_canary_0001"
NOON = 1_767_225_600.0


# A run that was started in the background ignores Ctrl-C, and so would the commands that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class FakeClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.seconds = NOON
        self.pauses: list[float] = []

    def clock(self) -> Clock:
        return Clock(now=self.now, monotonic=self.now, fraction=lambda: 0.5, request_id=lambda: str(uuid.uuid4()))

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


class Service:
    """Answers each call with what was laid out for its path; the last one stays. Refuses what is not truly signed."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.skew_seconds = 0.0
        self.requests: list[httpx2.Request] = []
        self._answers: dict[str, deque] = defaultdict(deque)
        self._seen: set[str] = set()

    def answers(self, path: str, *answers: httpx2.Response | Exception) -> None:
        self._answers[path].extend(answers)

    def bodies(self, path: str) -> list[dict]:
        return [json.loads(request.content) for request in self.requests if request.url.path.endswith(path)]

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        refused = self._refusal(request)
        if refused:
            return refused
        waiting = self._answers[request.url.path.removeprefix("/open-api/v1")]
        answer = waiting.popleft() if len(waiting) > 1 else waiting[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def _refusal(self, request: httpx2.Request) -> httpx2.Response | None:
        headers = request.headers
        assert request.method == "POST"
        assert headers["Content-Type"] == "application/json"
        assert isinstance(json.loads(request.content), dict)
        text = headers["RT-Timestamp"] + headers["RT-RequestID"] + headers["RT-AccessCode"]
        wanted = hmac.new(APP_SECRET.encode(), text.encode() + request.content, hashlib.sha256).hexdigest()
        now_ms = (self.clock.now() + self.skew_seconds) * 1000
        assert len(headers["RT-Timestamp"]) == 13
        if headers["RT-AccessCode"] != APP_KEY:
            return refusal("101005", 401)
        if abs(now_ms - int(headers["RT-Timestamp"])) > 300_000:
            return refusal("101001", 401, {"serverTime": int(now_ms)})
        if headers["X-Signature"] != wanted:
            return refusal("101003", 401)
        if headers["RT-RequestID"] in self._seen:
            return refusal("101004", 401)
        self._seen.add(headers["RT-RequestID"])
        return None


def success(data: dict) -> httpx2.Response:
    return httpx2.Response(
        200, json={"code": "000000", "message": "success", "data": data}, headers={"X-Trace-Id": "trace-1"}
    )


def refusal(code: str, status: int, data: dict | None = None, **headers: str) -> httpx2.Response:
    envelope = {"code": code, "message": f"refused with {code}", "data": data or {}}
    return httpx2.Response(status, json=envelope, headers={"X-Trace-Id": "trace-1"} | headers)


def snapshot(**changes: object) -> dict:
    """An order of one eSIM, delivered, as /esim/query answers it."""
    return {
        "transactionId": "T1",
        "orderNo": "D251231120000000001",
        "orderId": 1,
        "payStatus": "PAID",
        "deliveryStatus": "DELIVERED",
        "orderStatus": "COMPLETED",
        "currency": "USD",
        "amount": "1.80",
        "refundAmount": 0,
        "items": [
            {
                "itemNo": "11",
                "packageCode": "TEST-OK",
                "quantity": 1,
                "itemStatus": "DELIVERED",
                "profiles": [
                    {
                        "profileId": "111",
                        "iccid": "8910300000000000017",
                        "qrCodeUrl": "https://api.dealer.test/qr/abc",
                        "activationCode": "LPA:1$smdp.test$MATCH",
                        "installUrls": {"ios": "https://ios.test/abc", "android": "https://android.test/abc"},
                        "lifecycleStatus": "DELIVERED",
                        "planUseStatus": "NOT_STARTED",
                        "activated": False,
                        "cancelled": False,
                    }
                ],
            }
        ],
        "createTime": "2025-12-31T12:00:00Z",
        "updateTime": "2025-12-31T12:00:01Z",
    } | changes


def package(code: str = "TEST-OK", **changes: object) -> dict:
    return {
        "packageCode": code,
        "slug": code.lower(),
        "packageName": "Test 日本",
        "description": "",
        "type": "BASE",
        "status": "ON_SALE",
        "locationType": "COUNTRY",
        "locationCode": "JP",
        "locations": ["JP"],
        "price": "1.80",
        "retailPrice": "3.00",
        "currency": "USD",
        "dataType": "TOTAL",
        "dataBytes": 1_073_741_824,
        "duration": 7,
        "durationUnit": "DAY",
        "minPeriodNum": 1,
        "maxPeriodNum": 1,
        "unusedValidDays": 180,
        "activationType": "FIRST_NETWORK",
        "speed": "5G",
        "ipExport": "JP",
        "topUpSupport": False,
        "maxQuantity": 100,
        "networks": [{"locationCode": "JP", "operators": [{"operatorName": "Test", "networkType": "5G"}]}],
        "supportedFields": ["dataUsageBytes"],
        "updateTime": "2025-12-31T12:00:00Z",
    } | changes


def packages(*found: dict, **pager: object) -> dict:
    return {
        "catalogVersion": "7",
        "notModified": False,
        "packages": list(found),
        "pager": {"pageNum": 1, "pageSize": 200, "total": len(found)} | pager,
    }


class Either:
    """A Dealer or an AsyncDealer, every method awaited, so that one test tells of both."""

    def __init__(self, dealer: Dealer | AsyncDealer) -> None:
        self.dealer = dealer

    def __getattr__(self, name: str) -> Callable:
        method = getattr(self.dealer, name)

        async def call(*args: object, **kwargs: object) -> object:
            result = method(*args, **kwargs)
            if hasattr(result, "__anext__"):
                return [row async for row in result]
            if hasattr(result, "__next__"):
                return list(result)
            return await result if inspect.isawaitable(result) else result

        return call


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def service(clock: FakeClock) -> Service:
    return Service(clock)


@pytest.fixture(params=["Dealer", "AsyncDealer"])
def connect(request: pytest.FixtureRequest, service: Service, clock: FakeClock) -> Callable[..., Either]:
    """Makes a client of either kind, of the tenant the service knows unless told otherwise."""

    def make(url: str = URL, app_key: str = APP_KEY, app_secret: str = APP_SECRET, **options: object) -> Either:
        kind, sleep = (Dealer, clock.sleep) if request.param == "Dealer" else (AsyncDealer, clock.sleep_async)
        transport = httpx2.MockTransport(service)
        options = {"retry": RetryPolicy(), "transport": transport, "clock": clock.clock(), "sleep": sleep} | options
        return Either(kind(url, app_key, app_secret, **options))

    return make


@pytest.fixture
def dealer(connect: Callable[..., Either]) -> Either:
    return connect()


@pytest.fixture
def address(service: Service) -> Iterator[str]:
    """The double listening on loopback, for processes of their own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = service(
                httpx2.Request("POST", f"http://loopback{self.path}", headers=self.headers.items(), content=body)
            )
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


# Webhooks


def event_body(event_type: str = "DELIVERY_UPDATED", **changes: object) -> bytes:
    """The body of an event, as the service would write it."""
    hints = {"DELIVERY_UPDATED": ["ICCID_READY", "DELIVERY_STATUS_CHANGED"]}.get(event_type, [event_type])
    event = snapshot(eventType=event_type, changeHints=hints) | changes
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


def event_headers(
    body: bytes,
    *,
    secret: str = APP_SECRET,
    delivery_id: str = "w-1",
    attempt: int = 1,
    version: int = 3,
    now: float | None = None,
) -> dict[str, str]:
    """The headers of one attempt of a delivery, truly signed."""
    now_ms = int((time.time() if now is None else now) * 1000)
    headers = signed_headers(APP_KEY, secret.encode(), body, timestamp_ms=now_ms, request_id=str(uuid.uuid4()))
    return headers | {
        "RT-Delivery-ID": delivery_id,
        "RT-Delivery-Attempt": str(attempt),
        "RT-Order-Version": str(version),
    }


def delivery(delivery_id: str = "w-1", **changes: object) -> dict:
    """A delivery that failed twice, as /webhook/delivery/list shows it."""
    return {
        "deliveryId": delivery_id,
        "orderNo": "D251231120000000001",
        "eventType": "DELIVERY_UPDATED",
        "trigger": "AUTO",
        "status": "RETRY",
        "orderVersion": 3,
        "changeHints": ["ICCID_READY"],
        "attemptCount": 2,
        "nextAttemptTime": "2025-12-31T12:01:00Z",
        "createTime": "2025-12-31T12:00:01Z",
        "attempts": [
            {
                "number": 1,
                "time": "2025-12-31T12:00:01Z",
                "httpStatus": 500,
                "durationMs": 12,
                "error": "STATUS",
                "answerHead": "no",
            },
            {"number": 2, "time": "2025-12-31T12:00:06Z", "durationMs": 3000, "error": "CONNECT"},
        ],
    } | changes


def deliveries(*found: dict, **pager: object) -> dict:
    return {"deliveries": list(found), "pager": {"pageNum": 1, "pageSize": 200, "total": len(found)} | pager}
