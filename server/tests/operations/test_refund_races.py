"""Concurrent refunds, cancellations, late answers and orders on the same wallet."""

import asyncio
import random
from decimal import Decimal

from support.api_client import ApiClient, Reply, Service
from support.patience import PATIENCE

PRICE = Decimal("1.80")


async def balance(dealer: ApiClient) -> Decimal:
    return Decimal((await dealer.post("/account/balance")).data["balance"])


async def bought(dealer: ApiClient, package: str, quantity: int) -> dict:
    line = {"packageCode": package, "quantity": quantity, "price": "1.80"}
    order = await dealer.order(items=[line], amount=str(PRICE * quantity))
    return await dealer.delivered(order.data["orderNo"])


async def test_thirty_two_clients_refund_and_cancel_the_same_orders(service: Service, dealer: ApiClient):
    orders = [await bought(dealer, package, 4) for package in ("TEST-OK", "TEST-ASYNC", "TEST-REJECT", "TEST-OK")]
    before = await balance(dealer)

    async def client(seed: int) -> list[Reply]:
        chance, replies = random.Random(seed), []
        for _ in range(8):
            order = chance.choice(orders)
            [item] = order["items"]
            profile = chance.choice(item["profiles"])
            kind = chance.choice(("whole", "line", "profile", "profile", "cancel"))
            if kind == "cancel":
                replies.append(await dealer.post("/esim/profile/cancel", {"iccid": profile["iccid"]}))
                continue
            call: dict = {"orderNo": order["orderNo"]}
            if kind != "whole":
                named = {} if kind == "line" else {"profiles": [{"iccid": profile["iccid"]}]}
                call["items"] = [{"itemNo": item["itemNo"]} | named]
            replies.append(await dealer.post("/esim/refund", call))
        return replies

    replies = [reply for some in await asyncio.gather(*map(client, range(32))) for reply in some]
    assert {reply.code for reply in replies} <= {"000000", "200003", "200004"}
    async with asyncio.timeout(PATIENCE):
        while await service.database.run(
            lambda connection: connection.fetchval(
                "SELECT count(*) FROM refund WHERE tenant_id = $1 AND status = 'REFUNDING'", dealer.tenant_id
            )
        ):
            await asyncio.sleep(0.02)
    given_back = Decimal(0)
    for order in orders:
        after = (await dealer.post("/esim/query", {"orderNo": order["orderNo"]})).data
        given_back += Decimal(str(after["refundAmount"]))
        assert after["orderStatus"] in ("COMPLETED", "REFUNDED")
    assert await balance(dealer) == before + given_back <= before + PRICE * 16
    assert await service.audit() == []


async def test_sixty_four_clients_spend_one_balance_while_refunds_credit_it(service: Service):
    async with service.client(await service.tenant(balance="57.60", qps=0)) as dealer:  # enough for half of them

        async def client(number: int) -> int:
            """Buys, and gives back every second order; how many it kept."""
            kept = 0
            for turn in range(4):
                reply = await dealer.order()
                assert reply.code in ("000000", "200007"), reply
                if reply.code != "000000":
                    continue
                if (number + turn) % 2:
                    kept += 1
                else:
                    back = await dealer.post("/esim/refund", {"orderNo": reply.data["orderNo"]})
                    assert (back.code, back.data["status"]) == ("000000", "REFUNDED"), back
            return kept

        watching = asyncio.create_task(_the_sum_is_constant(service, dealer))
        kept = sum(await asyncio.gather(*map(client, range(64))))
        watching.cancel()
        [seen] = await asyncio.gather(watching, return_exceptions=True)
        assert isinstance(seen, asyncio.CancelledError), seen
        assert await balance(dealer) == Decimal("57.60") - PRICE * kept >= 0
        assert await service.audit() == []


async def _the_sum_is_constant(service: Service, dealer: ApiClient) -> None:
    """At every moment: what is in the wallet and what is paid and not given back is what was put in."""
    while True:
        total = await service.database.run(
            lambda connection: connection.fetchval(
                "SELECT balance + (SELECT coalesce(sum(amount - refund_amount), 0) FROM orders o"
                " WHERE o.tenant_id = w.tenant_id) FROM wallet w WHERE tenant_id = $1",
                dealer.tenant_id,
            )
        )
        assert total == 576_000
        await asyncio.sleep(0)
