"""A reseller API of the RT-* family, for tests: an upstream of our own that records what it sold.

It keeps the family's quirks: `success` is the string "true", the message is errorMsg or errorMessage in turn, money is
in ten-thousandths, eSIMs are allocated some queries after their order, webhooks are unsigned and may lack the
transactionId, signatures pass in either case of letters and may be missing, and so many calls a second are allowed.
A recharge raises no event, and one that has a known transactionId is the first one.
"""

import asyncio
import hmac
import itertools
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import aiohttp
import msgspec
from aiohttp import web

from dealer_server.rules.esim import iccid
from dealer_server.suppliers.rt.upstream import RtSettings

CODE, SECRET = "test-access-code", "canary-rt-secret"
PRICE, TOP_UP_PRICE, BALANCE = 18_000, 12_000, 1_000_000_000
TIME = "%Y-%m-%dT%H:%M:%S%z"
# LOST_BEFORE: the connection ends and nothing was done; LOST_AFTER: it was. HANG answers when `upstream.let_go` is set.
# GONE: refused for lack of stock, and nobody listens afterwards. What is six digits is refused with that code, with
# _AFTER behind it although it was done. In the others the text says what comes instead of an answer.
Fault = str
FAULTS = ("LOST_BEFORE", "LOST_AFTER", "500_BEFORE", "500_AFTER", "HTML_AFTER", "HALF_AFTER", "BUSY_AFTER", "429")


@dataclass
class Esim:
    esimTranNo: str
    orderNo: str
    transactionId: str
    iccid: str
    ac: str
    packageCode: str
    esimStatus: str = "GOT_RESOURCE"
    smdpStatus: str = "RELEASED"
    eid: str = ""
    activateTime: str | None = None
    expiredTime: str = "2027-05-20T00:00:00+0000"
    totalVolume: int = 1_073_741_824
    totalDuration: int = 7
    orderUsage: int = 0


@dataclass
class Order:
    order_no: str
    transaction_id: str
    price: int
    esims: list[Esim]
    looks_left: int  # queries until its eSIMs are allocated
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Recharge:
    transaction_id: str
    esim: Esim
    package_code: str
    price: int


class Refused(Exception):
    """An answer that is no success: the code and its message."""


class Book:
    """What this upstream sold, and the money left of its one customer."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.balance = BALANCE
        self.recharges: list[Recharge] = []
        self.packages: dict[str, dict[str, Any]] = {"JC016": package("JC016", supportTopUpType=2)}
        self.top_ups: dict[str, dict[str, Any]] = {"TOPUP_JC016": package("TOPUP_JC016", price=TOP_UP_PRICE)}
        self.fits: dict[str, tuple[str, ...]] = {"TOPUP_JC016": ("JC016",)}  # whose eSIMs they recharge
        self.reused: deque[str] = deque()  # ICCIDs that the next eSIMs sold have again
        self._numbers = itertools.count(1)

    def of(self, transaction_id: str) -> list[Order]:
        return [order for order in self.orders if order.transaction_id == transaction_id]

    def esims(self) -> list[Esim]:
        return [esim for order in self.orders for esim in order.esims]

    def sell(self, transaction_id: str, code: str, count: int, price: int, looks: int) -> Order:
        if price * count > self.balance:
            raise Refused("200007", "Insufficient account balance")
        number = next(self._numbers)
        order_no = f"B2611211{number:06}"
        esims = [self._esim(order_no, transaction_id, code, number * 100 + n) for n in range(count)]
        order = Order(order_no, transaction_id, price * count, esims, looks)
        self.orders.append(order)
        self.balance -= order.price
        return order

    def recharge(self, transaction_id: str, esim: Esim, code: str, days: int) -> Recharge:
        added = self.top_ups[code]
        if added["price"] * days > self.balance:
            raise Refused("200007", "Insufficient account balance")
        made = Recharge(transaction_id, esim, code, added["price"] * days)
        self.recharges.append(made)
        self.balance -= made.price
        esim.totalVolume += added["volume"] * days
        esim.totalDuration += added["duration"] * days
        if esim.esimStatus == "USED_UP":
            esim.esimStatus = "IN_USE"
        if esim.esimStatus == "IN_USE":
            ends = datetime.strptime(esim.expiredTime, TIME) + timedelta(days=added["duration"] * days)
            esim.expiredTime = ends.strftime(TIME)
        return made

    def _esim(self, order_no: str, transaction_id: str, code: str, number: int) -> Esim:
        digits = f"8901000{number:012}"
        card = self.reused.popleft() if self.reused else digits + iccid.luhn_digit(digits)
        text = f"LPA:1$rsp.upstream.example$MATCHING-{number:06}"
        return Esim(f"26112110{number:06}", order_no, transaction_id, card, text, code)


def package(code: str, **more: Any) -> dict[str, Any]:
    """A package as this family lists it; volume in bytes, price in ten-thousandths."""
    return {
        "packageCode": code,
        "slug": "JP_1_7",
        "name": "Japan 1GB 7Days",
        "price": PRICE,
        "currencyCode": "USD",
        "volume": 1_073_741_824,
        "smsStatus": 0,
        "dataType": 1,
        "unusedValidTime": 180,
        "duration": 7,
        "durationUnit": "DAY",
        "location": "JP",
        "description": "Japan 1GB 7Days",
        "activeType": 2,
        "favorite": False,
        "retailPrice": 36_000,
        "speed": "3G/4G/5G",
        "locationNetworkList": [
            {"locationName": "Japan", "operatorList": [{"operatorName": "SoftBank", "networkType": "5G"}]}
        ],
    } | more


class Upstream:
    """`duplicates` is what becomes of a transactionId that comes twice: refused with that code; "FIRST" answers with
    the first order, "SECOND" sells another. `not_yet` is how it says that an order is not allocated, `slow` after how
    many queries it is. `careless`: a query lists everything. Of recharges: `repeats` as `duplicates`; `late` is how
    many answers more say USED_UP of an eSIM that was recharged. `sms`: the esimTranNos and the texts that were sent."""

    def __init__(self, per_second: float, allowed: int | None):
        self.book = Book()
        self.calls: list[tuple[str, Any]] = []
        self.duplicates: str = "200008"
        self.not_yet: Literal["200010", "EMPTY", "NO_CODES"] = "200010"
        self.slow = 0
        self.careless = False
        self.repeats, self.late = "FIRST", 0
        self.page_size = 500
        self.sms: list[tuple[str, str]] = []
        self.let_go, self.hanging = asyncio.Event(), asyncio.Event()
        self.leave: Callable[[], Awaitable[None]]
        self.over = 0  # calls refused as too many
        self.settings = RtSettings("http://unset", CODE, SECRET, per_second=per_second, settle_seconds=0)
        self._allowed = allowed
        self._faults: dict[str, deque[Fault]] = {}
        self._times: deque[float] = deque()
        self._before: dict[str, str] = {}  # by esimTranNo: the status that an eSIM had before it was suspended
        self._messages = itertools.cycle(("errorMsg", "errorMessage"))
        self._operations: dict[str, Callable[[Any], Any]] = {
            "esim/order": self._order,
            "esim/query": self._query,
            "esim/topup": self._topup,
            "esim/cancel": self._cancel,
            "esim/revoke": self._revoke,
            "esim/suspend": self._suspend,
            "esim/unsuspend": self._unsuspend,
            "esim/usage/query": self._usage,
            "esim/sendSms": self._send_sms,
            "balance/query": lambda _: {"balance": self.book.balance},
            "package/list": self._packages,
        }

    def fault(self, operation: str, *faults: Fault) -> None:
        """The next calls of an operation fail so, one after the other; "" lets one pass."""
        self._faults.setdefault(operation, deque()).extend(faults)

    @property
    def all_ready(self) -> bool:
        """Whether the next query finds the eSIMs of every order allocated."""
        return all(order.looks_left <= 0 for order in self.book.orders)

    def calls_of(self, operation: str) -> list[Any]:
        return [content for name, content in self.calls if name == operation]

    def event(self, kind: str, esim: Esim, transaction_id: bool = True, **more: Any) -> dict[str, Any]:
        """A webhook about an eSIM; ORDER_STATUS names the order alone."""
        about = {"orderNo": esim.orderNo, "transactionId": esim.transactionId if transaction_id else None}
        if kind != "ORDER_STATUS":
            about |= {"iccid": esim.iccid, "esimTranNo": esim.esimTranNo}
        content = {name: value for name, value in about.items() if value is not None} | more
        return {"notifyType": kind, "notifyId": f"{kind}-{esim.esimTranNo}", "content": content}

    async def push(self, url: str, event: Mapping[str, Any]) -> int:
        """Sends a webhook, unsigned; the status it was answered with."""
        async with aiohttp.ClientSession() as session, session.post(url, json=event) as answer:
            return answer.status

    async def serve(self, request: web.Request) -> web.StreamResponse:
        operation, body = request.match_info["operation"], await request.read()
        faults = self._faults.get(operation)
        fault = faults.popleft() if faults else ""
        self.calls.append((operation, json.loads(body) if body else {}))
        if fault == "LOST_BEFORE":
            return self._lost(request)
        if fault == "500_BEFORE":
            return web.Response(status=500, text="Internal Server Error")
        if fault == "429" or self._too_many():
            self.over += 1
            return self._refused("900001", "System busy", 429)
        if fault == "GONE":
            await self.leave()
            answer = self._refused("200011", "Insufficient profiles")
            answer.force_close()
            return answer
        if fault.isdigit() and len(fault) == 6:
            return self._refused(fault, "as the test wants it")
        answer = self._answer(operation, request, body)
        return await self._spoiled(fault, request, answer)

    async def _spoiled(self, fault: Fault, request: web.Request, answer: web.Response) -> web.StreamResponse:
        if fault == "LOST_AFTER":
            return self._lost(request)
        if fault == "HANG":
            self.hanging.set()
            await self.let_go.wait()
        if fault == "HALF_AFTER":
            assert isinstance(answer.body, bytes)
            return web.Response(body=answer.body[: len(answer.body) // 2], content_type="application/json")
        if fault[:6].isdigit():
            return self._refused(fault[:6], "as the test wants it")
        other: Mapping[str, web.Response] = {
            "500_AFTER": web.Response(status=500, text="Internal Server Error"),
            "HTML_AFTER": web.Response(text="<html>down for maintenance</html>", content_type="text/html"),
            "BUSY_AFTER": self._refused("900001", "System busy"),
            "ERROR_AFTER": self._refused("000001", "Server error"),
        }
        return other.get(fault, answer)

    def _answer(self, operation: str, request: web.Request, body: bytes) -> web.Response:
        try:
            self._admit(request, body)
            content = json.loads(body) if body else {}
            return web.json_response(
                {"success": "true", "errorCode": None, "obj": self._operations[operation](content)}
            )
        except Refused as refused:
            return self._refused(*refused.args)

    def _admit(self, request: web.Request, body: bytes) -> None:
        headers = request.headers
        if headers.get("RT-AccessCode") != CODE:
            raise Refused("101003", "Signature mismatch")
        if (given := headers.get("RT-Signature")) is None:  # the access code alone is accepted
            return
        text = (headers["RT-Timestamp"] + headers["RT-RequestID"] + CODE).encode() + body
        if hmac.digest(SECRET.encode(), text, "sha256").hex() != given.lower():
            raise Refused("101003", "Signature mismatch")
        if abs(time.time() * 1000 - int(headers["RT-Timestamp"])) > 300_000:
            raise Refused("101001", "Timestamp expired")

    def _refused(self, code: str, message: str, status: int = 200) -> web.Response:
        body = {"success": "false", "errorCode": code, next(self._messages): message, "obj": None}
        return web.json_response(body, status=status)

    def _lost(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    def _too_many(self) -> bool:
        now = time.monotonic()
        while self._times and now - self._times[0] >= 1:
            self._times.popleft()
        if self._allowed is not None and len(self._times) >= self._allowed:
            return True
        self._times.append(now)
        return False

    def _order(self, content: Mapping[str, Any]) -> Any:
        transaction_id, (line,) = content["transactionId"], content["packageInfoList"]
        if first := self.book.of(transaction_id):
            if self.duplicates == "FIRST":
                return {"orderNo": first[0].order_no}
            if self.duplicates != "SECOND":
                raise Refused(self.duplicates, "transactionId exists")
        if line["packageCode"] not in self.book.packages:
            raise Refused("310241", "packageCode does not exist")
        price = self.book.packages[line["packageCode"]]["price"]
        if line.get("price", price) != price:
            raise Refused("200005", "Package price error")
        days = line.get("periodNum", 1)
        if content.get("amount", price * days * line["count"]) != price * days * line["count"]:
            raise Refused("200006", "Wrong total amount")
        order = self.book.sell(transaction_id, line["packageCode"], line["count"], price * days, self.slow)
        return {"orderNo": order.order_no}

    def _topup(self, content: Mapping[str, Any]) -> Any:
        _, esim = self._named(content)
        known = [one for one in self.book.recharges if one.transaction_id == content["transactionId"]]
        if known and self.repeats not in ("FIRST", "SECOND"):
            raise Refused(self.repeats, "transactionId exists")
        if not known or self.repeats == "SECOND":
            self._recharge(esim, content)
        return {
            "transactionId": content["transactionId"],
            "iccid": esim.iccid,
            "expiredTime": esim.expiredTime,
            "totalVolume": esim.totalVolume,
            "totalDuration": esim.totalDuration,
            "orderUsage": esim.orderUsage,
            "topUpEsimTranNo": f"T{esim.esimTranNo}-{len(self.book.recharges)}",
        }

    def _recharge(self, esim: Esim, content: Mapping[str, Any]) -> None:
        code, days = content["packageCode"], content.get("periodNum", 1)
        if esim.packageCode not in self.book.fits.get(code, ()):
            raise Refused("310241", "packageCode does not exist")
        if esim.esimStatus in ("CANCEL", "REVOKE"):
            raise Refused("200002", "Not allowed in this status")
        amount = self.book.top_ups[code]["price"] * days
        if content.get("amount", amount) != amount:
            raise Refused("200006", "Wrong total amount")
        self.book.recharge(content["transactionId"], esim, code, days)

    def _packages(self, content: Mapping[str, Any]) -> Any:
        """The recharges for an eSIM, or for those of a packageCode, or the whole eSIMs."""
        if content.get("type") != "TOPUP":
            return {"packageList": list(self.book.packages.values())}
        bases = {esim.packageCode for esim in self.book.esims() if esim.iccid == content.get("iccid")}
        bases |= {content.get("packageCode")}
        fitting = [code for code, fits in self.book.fits.items() if bases.intersection(fits)]
        return {"packageList": [self.book.top_ups[code] for code in fitting]}

    def _query(self, content: Mapping[str, Any]) -> Any:
        if "pager" not in content:
            raise Refused("000105", "pager is mandatory")
        asked = [order for order in self.book.orders if self.careless or _asked_for(order, content)]
        if content.get("orderNo") and not asked:
            raise Refused("310272", "orderNo does not exist")
        ready = [order for order in asked if order.looks_left <= 0]
        for order in asked:
            order.looks_left -= 1
        esims = [esim for order in ready for esim in order.esims]
        if self.not_yet == "NO_CODES":
            esims += [_bare(esim) for order in asked if order not in ready for esim in order.esims]
        if asked and not esims and self.not_yet == "200010":
            raise Refused("200010", "Profile is being allocated")
        return self._page([esim for esim in esims if content.get("iccid") in (None, esim.iccid)], content["pager"])

    def _page(self, esims: Sequence[Esim], pager: Mapping[str, int]) -> Any:
        size = min(pager["pageSize"], self.page_size)
        begin = (pager["pageNum"] - 1) * size
        return {
            "esimList": [self._listed(esim) for esim in esims[begin : begin + size]],
            "pager": {**pager, "total": len(esims)},
        }

    def _listed(self, esim: Esim) -> dict[str, Any]:
        if self.late and any(one.esim is esim for one in self.book.recharges):
            self.late -= 1
            return asdict(esim) | {"esimStatus": "USED_UP"}
        return asdict(esim)

    def _cancel(self, content: Mapping[str, Any]) -> Any:
        order, esim = self._named(content)
        if (esim.esimStatus, esim.smdpStatus) != ("GOT_RESOURCE", "RELEASED"):
            raise Refused("200002", "Not allowed in this status")
        esim.esimStatus = "CANCEL"
        self.book.balance += order.price
        return {}

    def _revoke(self, content: Mapping[str, Any]) -> Any:
        _, esim = self._named(content)
        if esim.esimStatus in ("CANCEL", "REVOKE"):
            raise Refused("200002", "Not allowed in this status")
        esim.esimStatus = "REVOKE"
        return {}

    def _suspend(self, content: Mapping[str, Any]) -> Any:
        _, esim = self._named(content)
        if esim.esimStatus not in ("GOT_RESOURCE", "IN_USE"):
            raise Refused("200002", "Not allowed in this status")
        self._before[esim.esimTranNo], esim.esimStatus = esim.esimStatus, "SUSPENDED"
        return {}

    def _unsuspend(self, content: Mapping[str, Any]) -> Any:
        _, esim = self._named(content)
        if esim.esimStatus != "SUSPENDED":
            raise Refused("200002", "Not allowed in this status")
        esim.esimStatus = self._before.pop(esim.esimTranNo, "IN_USE")
        return {}

    def _send_sms(self, content: Mapping[str, Any]) -> Any:
        _, esim = self._named(content)
        if esim.smdpStatus != "ENABLED":
            raise Refused("200002", f"Not allowed in this status: {content['message']}")
        self.sms.append((esim.esimTranNo, content["message"]))
        return {}

    def _named(self, content: Mapping[str, Any]) -> tuple[Order, Esim]:
        for order in self.book.orders:
            for esim in order.esims:
                if content.get("esimTranNo") == esim.esimTranNo or content.get("iccid") == esim.iccid:
                    return order, esim
        raise Refused("310403", "ICCID not in the order")

    def _usage(self, content: Mapping[str, Any]) -> Any:
        numbers = content["esimTranNoList"]
        if not 1 <= len(numbers) <= 10:
            raise Refused("000107", "1 to 10 are allowed")
        return [
            {
                "esimTranNo": esim.esimTranNo,
                "dataUsage": esim.orderUsage,
                "totalData": esim.totalVolume,
                "lastUpdateTime": "2026-11-21T11:00:00+0000",
            }
            for esim in self.book.esims()
            if esim.esimTranNo in numbers
        ]


def _asked_for(order: Order, content: Mapping[str, Any]) -> bool:
    if content.get("orderNo"):
        return content["orderNo"] == order.order_no
    if content.get("iccid"):
        return content["iccid"] in [esim.iccid for esim in order.esims]
    begin, end = (datetime.strptime(content[name], TIME) for name in ("startTime", "endTime"))
    return begin <= order.at <= end


def _bare(esim: Esim) -> Esim:
    return Esim(esim.esimTranNo, esim.orderNo, esim.transactionId, "", "", esim.packageCode)


@asynccontextmanager
async def running_upstream(per_second: float = 10_000, allowed: int | None = None) -> AsyncIterator[Upstream]:
    """One on a loopback port. Its settings ask it at `per_second`; `allowed` is how many calls a second it takes."""
    upstream = Upstream(per_second, allowed)
    app = web.Application()
    app.router.add_post("/api/v1/open/{operation:.+}", upstream.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    upstream.leave = site.stop
    host, port = runner.addresses[0][:2]
    upstream.settings = msgspec.structs.replace(upstream.settings, base_url=f"http://{host}:{port}")
    try:
        yield upstream
    finally:
        upstream.let_go.set()
        await runner.cleanup()
