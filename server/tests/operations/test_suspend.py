"""Profiles are suspended and work again, through the public client, at the simulated network: at once."""

import asyncio
import random
from typing import Any

import pytest

from dealer_server.operations.catalogue.load_stock import load_stock
from dealer_server.store.tenants import data_key
from support.api_client import ApiClient, Reply, Service
from support.money.refunds import bought, profiles, query, refund
from support.store_fixture import stock_csv
from support.webhook_fixture import Receiver

pytestmark = pytest.mark.usefixtures("exact")

SUSPEND, UNSUSPEND, CANCEL = "/esim/profile/suspend", "/esim/profile/unsuspend", "/esim/profile/cancel"
BOTH = (SUSPEND, UNSUSPEND)
NOBODYS = "8900000000000000009"


def name(order: dict[str, Any], number: int = 0) -> dict[str, int]:
    return {"profileId": int(profiles(order)[number]["profileId"])}


async def profile(dealer: ApiClient, order: dict[str, Any], number: int = 0) -> dict[str, Any]:
    return profiles(await query(dealer, order))[number]


async def advance(dealer: ApiClient, order: dict[str, Any], step: str, **call: Any) -> dict[str, Any]:
    reply = await dealer.post("/test/profile/advance", name(order) | {"step": step} | call)
    assert reply.code == "000000", reply
    return reply.data


async def acts(service: Service, order: dict[str, Any], number: int = 0) -> list[tuple[bool, str]]:
    async with service.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT suspended, outcome FROM suspension WHERE profile_id = $1 ORDER BY suspension_id",
            name(order, number)["profileId"],
        )
    return [(row["suspended"], row["outcome"]) for row in rows]


async def test_a_profile_is_suspended_and_works_again(service: Service, dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    await receiver.received(2)
    before = await profile(dealer, order)
    assert "suspended" not in before and "suspendedAt" not in before
    reply = await dealer.post(SUSPEND, name(order))
    assert reply.code == "000000", reply
    assert reply.data == {
        "orderNo": order["orderNo"],
        "itemNo": order["items"][0]["itemNo"],
        **name(order),
        "iccid": before["iccid"],
        "asyncStatus": "COMPLETED",
        "cancelled": False,
        "lifecycleStatus": "DELIVERED",
        "suspended": True,
    }
    suspended = await profile(dealer, order)
    since = suspended["suspendedAt"]
    assert suspended == before | {"suspended": True, "suspendedAt": since}, "nothing else changed"
    await receiver.received(3)
    told = receiver.requests[2].json
    assert (told["eventType"], told["changeHints"]) == ("DELIVERY_UPDATED", ["ORDER_SNAPSHOT_SYNC"])
    assert profiles(told) == [suspended]
    ended = await dealer.post(UNSUSPEND, {"iccid": before["iccid"]})
    assert (ended.code, ended.data["asyncStatus"], ended.data["suspended"]) == ("000000", "COMPLETED", False)
    assert await profile(dealer, order) == before
    await receiver.received(4)
    assert receiver.requests[3].json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]
    assert await acts(service, order) == [(True, "DONE"), (False, "DONE")]


@pytest.mark.parametrize(("path", "suspended"), [(SUSPEND, True), (UNSUSPEND, False)])
async def test_a_repeat_succeeds_and_changes_nothing(service: Service, dealer: ApiClient, path: str, suspended: bool):
    order = await bought(dealer)
    await dealer.post(path, name(order))
    before = await query(dealer, order)
    known = await acts(service, order)
    for named in (name(order), {"iccid": profiles(order)[0]["iccid"]}):
        reply = await dealer.post(path, named)
        assert (reply.code, reply.data["asyncStatus"]) == ("000000", "COMPLETED")
        assert reply.data["suspended"] == suspended
    assert await query(dealer, order) == before and await acts(service, order) == known


async def test_a_later_report_of_use_ends_it(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    await receiver.received(2)  # An update that waits would take the next one in.
    await dealer.post(SUSPEND, name(order))
    await receiver.received(3)
    used = await advance(dealer, order, "START")
    assert "suspended" not in used and used["esimStatus"] == "IN_USE"
    await receiver.received(4)
    hints = receiver.requests[3].json["changeHints"]
    assert "ESIM_STATUS_CHANGED" in hints and "ORDER_SNAPSHOT_SYNC" not in hints


async def test_what_is_no_word_of_it_leaves_it_suspended(dealer: ApiClient):
    order = await bought(dealer)
    await advance(dealer, order, "START")
    await dealer.post(SUSPEND, name(order))
    for step in ("DOWNLOAD", "INSTALL", "ENABLE"):
        assert (await advance(dealer, order, step))["suspended"] is True
    assert (await profile(dealer, order))["planUseStatus"] == "STARTED"


async def test_the_end_outranks_it(dealer: ApiClient):
    order = await bought(dealer)
    await advance(dealer, order, "START")
    await dealer.post(SUSPEND, name(order))
    ended = await advance(dealer, order, "EXPIRE")
    assert (ended["esimStatus"], ended["planUseStatus"]) == ("USED_EXPIRED", "ENDED")
    assert "suspended" not in ended and "suspendedAt" not in ended


async def test_a_suspended_profile_is_cancelled_and_refunded_like_any_other(dealer: ApiClient):
    order = await bought(dealer, quantity=2)
    for number in (0, 1):
        await dealer.post(SUSPEND, name(order, number))
    assert (await dealer.post(CANCEL, name(order))).data["cancelled"] is True
    assert (await refund(dealer, order)).data["status"] == "REFUNDED"
    for one in profiles(await query(dealer, order)):
        assert one["cancelled"] and "suspended" not in one


# Refusals


async def refused(reply: Reply, code: str, status: int) -> None:
    assert (reply.code, reply.status) == (code, status), reply


@pytest.mark.parametrize("path", BOTH)
async def test_who_is_no_profile_of_this_dealer_is_unknown(dealer: ApiClient, stranger: ApiClient, path: str):
    order = await bought(dealer)
    for named in (name(order), {"iccid": profiles(order)[0]["iccid"]}, {"profileId": 1}, {"iccid": NOBODYS}):
        await refused(await stranger.post(path, named), "310404", 404)
    assert "suspended" not in await profile(dealer, order)
    await refused(await dealer.post(path, {}), "000105", 400)
    both = name(order) | {"iccid": profiles(order)[0]["iccid"]}
    await refused(await dealer.post(path, both), "000111", 400)


@pytest.mark.parametrize("path", BOTH)
async def test_what_is_void_or_over_or_held_is_refused(dealer: ApiClient, stranger: ApiClient, path: str):
    for client in (dealer, stranger):
        order = await bought(client, quantity=3)
        await client.post(CANCEL, name(order))
        await client.post("/test/profile/advance", name(order, 1) | {"step": "EXPIRE"})
        await refund(client, order, items=[{"itemNo": order["items"][0]["itemNo"], "profiles": [name(order, 2)]}])
        for number in range(3):
            await refused(await client.post(path, name(order, number)), "200002", 409)
        held = await bought(client, "TEST-REVIEW")
        assert (await refund(client, held)).data["status"] == "REFUNDING"
        await refused(await client.post(path, name(held)), "200004", 409)
        waiting = await bought(client, "TEST-ASYNC")
        assert (await client.post(CANCEL, name(waiting))).data["asyncStatus"] == "PENDING"
        await refused(await client.post(path, name(waiting)), "200002", 409)


@pytest.mark.parametrize("path", BOTH)
async def test_stock_is_not_suspended(service: Service, dealer: ApiClient, path: str):
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
        first: int = await connection.fetchval("SELECT count(*) FROM stock_profile") or 0
    await load_stock(service.database, keys, "DEMO-STOCK", stock_csv(1, first), "test")
    placed = await dealer.order(items=[{"packageCode": "DEMO-STOCK", "quantity": 1, "price": "2.50"}], amount="2.50")
    order = await dealer.delivered(placed.data["orderNo"])
    await refused(await dealer.post(path, name(order)), "200022", 501)


# Races


async def test_twelve_at_once_suspend_one_profile_once(service: Service, dealer: ApiClient):
    order = await bought(dealer)
    replies = await asyncio.gather(*(dealer.post(SUSPEND, name(order)) for _ in range(12)))
    assert {(reply.code, reply.data["suspended"]) for reply in replies} == {("000000", True)}
    assert await acts(service, order) == [(True, "DONE")]


async def test_twelve_at_once_suspend_cancel_and_refund(service: Service, dealer: ApiClient):
    """Whichever comes first: what is void stays void, money comes back for a refund only, and the acts of a profile
    alternate."""
    order = await bought(dealer, quantity=4)

    async def client(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(6):
            number = chance.randrange(4)
            path = chance.choice((*BOTH, *BOTH, CANCEL, "refund"))
            if path == "refund":
                items = [{"itemNo": order["items"][0]["itemNo"], "profiles": [name(order, number)]}]
                reply = await refund(dealer, order, items=items)
                assert reply.code in ("000000", "200003", "200004"), reply
                continue
            reply = await dealer.post(path, name(order, number))
            assert reply.code in ("000000", "200002"), reply

    await asyncio.gather(*map(client, range(12)))
    after = await query(dealer, order)
    for number, one in enumerate(profiles(after)):
        done = [suspended for suspended, outcome in await acts(service, order, number) if outcome == "DONE"]
        assert done == [at % 2 == 0 for at in range(len(done))]
        assert one.get("suspended", False) == (bool(done) and done[-1] and not one["cancelled"])
    refunded = float(after["refundAmount"])
    assert (await dealer.post("/account/balance")).data["balance"] == f"{1000 - 7.2 + refunded:.2f}"
