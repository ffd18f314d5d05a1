"""Two made-up suppliers that speak the RT dialect, while `dealer-server dev` runs. Each answers by what the number of
an order says. Signatures are not looked at.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from dealer_server import clock, store
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.suppliers.configure import put_supplier, set_route
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.esim import iccid
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.suppliers import registry
from dealer_server.suppliers.rt.calls import PATH, RtSettings

KIND = "rt_upstream"
_CENT = 100
_MINUTE, _DAY = 60, 86_400
_INSTALLED_AFTER, _USED_AFTER, _USED_WITHIN = 8 * _MINUTE, 20 * _MINUTE, 5 * _DAY
_PAST, _NEW = "P", "N"


class Wholesaler(NamedTuple):
    """`asks`: percent of the dealer price. `balance`: what is left of our money there, in ten-thousandths."""

    code: str
    asks: int
    balance: int

    def cost(self, package: Package) -> int:
        """In ten-thousandths."""
        return package.price * self.asks // 100 // _CENT * _CENT

    def hop(self, package: Package) -> Hop:
        return Hop(self.code, package.package_code, self.cost(package), package.currency)


FIRST, SECOND = Wholesaler("northlink", 61, 41_827_500), Wholesaler("globecell", 70, 9_340_000)
ALL = (FIRST, SECOND)


def past_order_no(profile_id: int) -> str:
    """Of an eSIM of a made-up past; it is still as it was sold."""
    return f"{_PAST}{profile_id}"


def past_iccid(profile_id: int) -> str:
    return _iccid(f"{profile_id % 10**14:014d}")


def _iccid(digits: str) -> str:
    return f"89009{digits}" + iccid.luhn_digit(f"89009{digits}")


class _Refused(Exception):
    """An answer that is no success: the code and its message."""


class RtServer:
    """Answers for both, who make these packages. Until it ends it remembers the transactionIds of what it sold, and
    what was cancelled or suspended."""

    def __init__(self, packages: Mapping[str, Package], now: Callable[[], float] = time.time):
        self._packages = packages
        self._now = now
        self._sold: dict[str, str] = {}
        self._cancelled: set[str] = set()
        self._suspended: set[str] = set()
        self._operations: Mapping[str, Callable[[Wholesaler, Mapping[str, Any]], Any]] = {
            "balance/query": lambda wholesaler, _: {"balance": wholesaler.balance, "currencyCode": "USD"},
            "package/list": self._list,
            "esim/order": self._order,
            "esim/query": lambda _, asked: {"esimList": self._found(asked)},
            "esim/usage/query": lambda _, asked: [self._usage(one) for one in asked.get("esimTranNoList", ())],
            "esim/cancel": lambda _, asked: self._note(asked, self._cancelled.add),
            "esim/revoke": lambda _, asked: self._note(asked, self._cancelled.add),
            "esim/suspend": lambda _, asked: self._note(asked, self._suspended.add),
            "esim/unsuspend": lambda _, asked: self._note(asked, self._suspended.discard),
            "esim/sendSms": lambda _, __: {},
        }

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.post(f"/suppliers/{one.code}{PATH}{{operation:.+}}", self._handler(one)) for one in ALL]

    def _handler(self, wholesaler: Wholesaler) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            return web.json_response(
                self.answer(wholesaler, request.match_info["operation"], json.loads(await request.read() or b"{}"))
            )

        return handle

    def answer(self, wholesaler: Wholesaler, operation: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            if operation not in self._operations:
                raise _Refused("000001", "No such operation")
            return {"success": True, "errorCode": None, "obj": self._operations[operation](wholesaler, asked)}
        except _Refused as refused:
            code, message = refused.args
            return {"success": False, "errorCode": code, "errorMsg": message, "obj": None}

    def _list(self, wholesaler: Wholesaler, asked: Mapping[str, Any]) -> Any:
        """What they sell, or the price of one package; nothing recharges another."""
        if asked.get("type") == "TOPUP":
            return {"packageList": []}
        wanted = asked.get("packageCode")
        found = [package for code, package in self._packages.items() if wanted in (None, code)]
        return {"packageList": [_listed(wholesaler, package) for package in found]}

    def _order(self, _: Wholesaler, asked: Mapping[str, Any]) -> Any:
        transaction_id, (line,) = str(asked["transactionId"]), asked["packageInfoList"]
        if line["packageCode"] not in self._packages:
            raise _Refused("310241", "packageCode does not exist")
        if transaction_id not in self._sold:
            digest = hashlib.sha256(transaction_id.encode()).hexdigest()[:12]
            self._sold[transaction_id] = f"{_NEW}{int(self._now())}_{line['packageCode']}_{digest}"
        return {"orderNo": self._sold[transaction_id]}

    def _found(self, asked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The one eSIM of an order; none where orders are asked for by time."""
        order_no = str(asked.get("orderNo") or "")
        if order_no.startswith(_PAST):
            return [self._esim(order_no, past_iccid(int(order_no[1:])), "GOT_RESOURCE", "RELEASED")]
        return [self._made(order_no)] if order_no.startswith(_NEW) else []

    def _made(self, order_no: str) -> Mapping[str, Any]:
        """An eSIM that is installed some minutes after its order, and used up within days."""
        began, code, digest = order_no[1:].split("_")
        card, package = _iccid(f"{int(digest, 16) % 10**14:014d}"), self._packages[code]
        age = self._now() - int(began) - _USED_AFTER
        if age < 0:
            smdp = "RELEASED" if age + _USED_AFTER < _INSTALLED_AFTER else "INSTALLATION"
            return self._esim(order_no, card, "GOT_RESOURCE", smdp, totalVolume=package.data_bytes)
        ends, share = int(began) + _USED_AFTER + package.duration * _DAY, min(age / _USED_WITHIN, 1)
        return self._esim(
            order_no,
            card,
            "USED_EXPIRED" if self._now() >= ends else "USED_UP" if share == 1 else "IN_USE",
            "ENABLED",
            totalVolume=package.data_bytes,
            orderUsage=int((package.data_bytes or 0) * share),
            activateTime=_time_text(int(began) + _USED_AFTER),
            expiredTime=_time_text(ends),
        )

    def _esim(self, order_no: str, card: str, esim_status: str, smdp_status: str, **more: Any) -> Mapping[str, Any]:
        if order_no in self._suspended:
            esim_status = "SUSPENDED"
        if order_no in self._cancelled:
            esim_status = "CANCEL"
        token = hashlib.sha256(order_no.encode()).hexdigest()[:26].upper()
        return {
            "orderNo": order_no,
            "esimTranNo": order_no,
            "iccid": card,
            "ac": f"LPA:1$rsp.wholesale.example${token}",
            "esimStatus": esim_status,
            "smdpStatus": smdp_status,
            **more,
        }

    def _usage(self, order_no: str) -> Mapping[str, Any]:
        found = self._found({"orderNo": order_no})
        used = found[0].get("orderUsage", 0) if found else 0
        return {"esimTranNo": order_no, "dataUsage": used, "totalData": found[0].get("totalVolume") if found else None}

    def _note(self, asked: Mapping[str, Any], note: Callable[[str], object]) -> Any:
        note(str(asked.get("esimTranNo") or ""))
        return {}


def _listed(wholesaler: Wholesaler, package: Package) -> Mapping[str, Any]:
    return {
        "packageCode": package.package_code,
        "name": package.package_code,
        "price": wholesaler.cost(package),
        "currencyCode": package.currency,
        "volume": package.data_bytes,
        "duration": package.duration,
        "durationUnit": "DAY",
        "location": package.package_code.partition("-")[0],
    }


def _time_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")


async def put(database: Database, keys: DataKeys, address: str, our_url: str) -> None:
    """Adds them as suppliers; those that are there are called at this address from now on."""
    async with database.connection() as connection:
        known = {one.code: registry.read(one.kind, one.settings) for one in await store.supplier.load(connection, keys)}
    for one in ALL:
        wanted = RtSettings(f"{address}/suppliers/{one.code}", "dev", "dev", per_second=50.0, settle_seconds=1.0)
        if known.get(one.code) != wanted:
            await put_supplier(database, keys, one.code, KIND, msgspec.json.encode(wanted), our_url, "dev")


async def put_routes(database: Database, packages: Mapping[str, Package]) -> None:
    """Each package is made by the first, or else by the second."""
    for code, package in packages.items():
        await set_route(database, code, [one.hop(package) for one in ALL], "dev", clock.now)
