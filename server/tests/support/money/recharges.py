"""Recharges through the public client."""

import asyncio
import secrets
from typing import Any

from support.api_client import ApiClient, Reply
from support.money.refunds import profiles, query
from support.patience import PATIENCE


async def recharge(
    dealer: ApiClient, order: dict[str, Any] | None, package: str = "TEST-TOPUP-OK", **call: Any
) -> Reply:
    """Of the first eSIM of an order; what `call` says of it replaces the rest, None leaves out."""
    named = {} if order is None else {"iccid": profiles(order)[0]["iccid"]}
    request = {"transactionId": f"r-{secrets.token_hex(8)}", "packageCode": package, "price": "1.20", "amount": "1.20"}
    return await dealer.post(
        "/esim/topup", {name: value for name, value in (request | named | call).items() if value is not None}
    )


async def recharged(dealer: ApiClient, order: dict[str, Any], package: str = "TEST-TOPUP-OK") -> dict[str, Any]:
    """The order of a recharge, once it is applied."""
    reply = await recharge(dealer, order, package)
    assert reply.code == "000000", reply
    return await dealer.delivered(reply.data["orderNo"])


async def advance(dealer: ApiClient, order: dict[str, Any], step: str, **call: Any) -> dict[str, Any]:
    reply = await dealer.post("/test/profile/advance", {"iccid": profiles(order)[0]["iccid"], "step": step} | call)
    assert reply.code == "000000", reply
    return reply.data


async def plans(dealer: ApiClient, order: dict[str, Any]) -> list[dict[str, Any]]:
    reply = await dealer.post("/esim/profile/plans", {"profileId": int(profiles(order)[0]["profileId"])})
    assert reply.code == "000000", reply
    return reply.data["plans"]


async def shown(dealer: ApiClient, order: dict[str, Any]) -> dict[str, Any]:
    return profiles(await query(dealer, order))[0]


async def over(dealer: ApiClient, order: dict[str, Any]) -> None:
    """Once the order is complete or refunded."""
    async with asyncio.timeout(PATIENCE):
        while (await query(dealer, order))["orderStatus"] not in ("COMPLETED", "REFUNDED"):
            await asyncio.sleep(0.01)


async def balance(dealer: ApiClient) -> str:
    return (await dealer.post("/account/balance")).data["balance"]
