"""Orders that are bought, looked at and refunded, as a dealer does it."""

import asyncio
from decimal import Decimal
from typing import Any

from support.api_client import ApiClient, Reply
from support.patience import PATIENCE

PRICE = Decimal("1.80")


async def bought(dealer: ApiClient, package: str = "TEST-OK", quantity: int = 1, lines: int = 1) -> dict[str, Any]:
    """A delivered order."""
    line = {"packageCode": package, "quantity": quantity, "price": "1.80"}
    packages = [package, "TEST-ASYNC", "TEST-DELAY"][:lines]
    items = [line | {"packageCode": one} for one in packages]
    amount = PRICE * quantity * len(items)
    order_no = (await dealer.order(items=items, amount=str(amount))).data["orderNo"]
    return await dealer.delivered(order_no)


async def query(dealer: ApiClient, order: dict[str, Any]) -> dict[str, Any]:
    return (await dealer.post("/esim/query", {"orderNo": order["orderNo"]})).data


async def refund(dealer: ApiClient, order: dict[str, Any], **call: Any) -> Reply:
    return await dealer.post("/esim/refund", {"orderNo": order["orderNo"]} | call)


def profiles(order: dict[str, Any], line: int = 0) -> list[dict[str, Any]]:
    return order["items"][line]["profiles"]


def named(order: dict[str, Any], *ids: dict[str, Any], line: int = 0) -> list[dict[str, Any]]:
    return [{"itemNo": order["items"][line]["itemNo"], "profiles": list(ids)}]


async def settled(dealer: ApiClient, order: dict[str, Any]) -> dict[str, Any]:
    """The order once no refund of it is pending."""
    async with asyncio.timeout(PATIENCE):
        while (now := await query(dealer, order))["orderStatus"] == "REFUNDING":
            await asyncio.sleep(0.02)
    return now
