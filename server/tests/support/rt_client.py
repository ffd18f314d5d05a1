"""Clients of the RT-* family, for tests of our RT face: what they send, and how they read the answer."""

import json
import secrets
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from esim_dealer.wire.signing import signature
from support.patience import found

PREFIX = "/api/v1/open/"


@dataclass(frozen=True)
class RtReply:
    status: int
    success: bool
    code: str
    message: str
    obj: Any
    headers: Mapping[str, str]


@dataclass
class RtClient:
    """One dealer's calls: signed, or with `app_secret` None by AppKey alone."""

    url: str
    app_key: str
    app_secret: str | None
    http: httpx2.AsyncClient = field(repr=False)

    def headers(self, body: bytes, **spoiled: str | None) -> dict[str, str]:
        good = {"RT-AccessCode": self.app_key}
        if self.app_secret is not None:
            good |= {"RT-RequestID": uuid.uuid4().hex, "RT-Timestamp": str(int(time.time() * 1000))}
            signed = [good[name].encode() for name in ("RT-Timestamp", "RT-RequestID", "RT-AccessCode")]
            good["RT-Signature"] = signature(self.app_secret.encode(), *signed, body).upper()
        return {name: value for name, value in (good | spoiled).items() if value is not None}

    async def post(
        self, operation: str, content: Mapping[str, Any] | bytes | None = None, **spoiled: str | None
    ) -> RtReply:
        """A call as the family documents it; without `content` its body is empty."""
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        answer = await self.http.post(
            f"{self.url}{PREFIX}{operation}", content=body, headers=self.headers(body, **spoiled)
        )
        said = answer.json()
        assert set(said) == {"success", "errorCode", "errorMsg", "errorMessage", "obj"}
        assert said["errorMsg"] == said["errorMessage"]
        assert (said["success"] is True) == (said["errorCode"] == "0") == (said["errorMsg"] is None)
        return RtReply(
            answer.status_code, said["success"], said["errorCode"], said["errorMsg"], said["obj"], answer.headers
        )

    async def good(self, operation: str, content: Mapping[str, Any] | None = None) -> Any:
        """`obj` of a call that succeeds."""
        reply = await self.post(operation, content)
        assert (reply.status, reply.code) == (200, "0"), reply
        return reply.obj

    async def refused(self, operation: str, content: Mapping[str, Any] | None = None) -> tuple[str, str]:
        """Number and message of a call that was understood and refused."""
        reply = await self.post(operation, content)
        assert (reply.status, reply.success, reply.obj) == (200, False, None), reply
        return reply.code, reply.message

    async def order(self, package: str = "TEST-OK", count: int = 1, **changed: Any) -> str:
        """The orderNo of an order at the dealer's own price."""
        call = {
            "transactionId": f"rt-{secrets.token_hex(8)}",
            "packageInfoList": [{"packageCode": package, "count": count}],
        }
        return (await self.good("esim/order", call | changed))["orderNo"]

    async def bought(self, package: str = "TEST-OK", count: int = 1) -> list[dict[str, Any]]:
        """The eSIMs of a new order, asked for until they are there."""
        return await self.esims(await self.order(package, count))

    async def esims(self, order_no: str) -> list[dict[str, Any]]:
        async def look() -> list[dict[str, Any]] | None:
            reply = await self.post("esim/query", {"orderNo": order_no, "pager": {"pageNum": 1, "pageSize": 500}})
            assert reply.code in ("0", "200010"), reply
            return reply.obj["esimList"] if reply.success else None

        return await found(look)

    async def esim(self, iccid: str) -> dict[str, Any]:
        [esim] = (await self.good("esim/query", {"iccid": iccid}))["esimList"]
        return esim
