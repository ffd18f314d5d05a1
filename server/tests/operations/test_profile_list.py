"""/esim/profile/list lists what was allocated; what has no codes is listed on request (specification 4.8)."""

from typing import Any

from support.api_client import ApiClient, running_service

DELIVERED_LATER, NEVER = 3, 1
ORDERED = DELIVERED_LATER + NEVER


async def listed(client: ApiClient, **filters: Any) -> list[str]:
    """The profileIds of all pages, by cursor, two rows a page; the total is that of the rows."""
    found: list[str] = []
    pager: dict[str, Any] = {"pageSize": 2}
    while True:
        reply = await client.post("/esim/profile/list", {**filters, "pager": pager})
        assert reply.code == "000000", reply
        found += [record["profile"]["profileId"] for record in reply.data["records"]]
        total = reply.data["pager"]["total"]
        if (after := reply.data["pager"].get("next")) is None:
            assert total == len(found)
            return found
        pager = {"pageSize": 2, "after": after}


async def ordered(client: ApiClient, quantity: int) -> tuple[str, list[str]]:
    """The orderNo and the profileIds of a new order, newest first."""
    line = {"packageCode": "TEST-OK", "quantity": quantity, "price": "1.80"}
    data = (await client.order(items=[line], amount=f"{1.8 * quantity:.2f}")).data
    return data["orderNo"], [profile["profileId"] for profile in data["items"][0]["profiles"]][::-1]


async def test_profiles_without_codes_are_listed_only_on_request(database_url: str):
    async with running_service(database_url, worker=False) as quiet:
        created = await quiet.tenant(balance="1000", qps=0)
        async with quiet.client(created) as client:
            order_no, (*pending, void) = await ordered(client, ORDERED)
            assert (await client.post("/esim/profile/cancel", {"profileId": void})).data["cancelled"] is True
            assert await listed(client) == []
            assert await listed(client, orderNo=order_no) == []
            assert await listed(client, cancelled=False) == []
            assert await listed(client, lifecycleStatus="PENDING") == pending
            assert await listed(client, lifecycleStatus=["PENDING", "DELIVERED"], orderNo=order_no) == pending
            for cancelled_before_delivery in ({"lifecycleStatus": "CANCELLED"}, {"cancelled": True}):
                assert await listed(client, **cancelled_before_delivery) == []
            assert await listed(client, lifecycleStatus=["PENDING", "CANCELLED"]) == pending
            for profile_id in (pending[0], void):
                assert await listed(client, profileId=profile_id) == [profile_id]
            assert await listed(client, profileId=pending[0], lifecycleStatus="DELIVERED") == []

        async with running_service(database_url) as busy, busy.client(created) as client:
            await client.delivered(order_no)

        async with quiet.client(created) as client:
            _, later = await ordered(client, 1)
            assert await listed(client) == await listed(client, orderNo=order_no) == pending
            assert await listed(client, lifecycleStatus="PENDING") == later
            assert await listed(client, lifecycleStatus=["PENDING", "DELIVERED"]) == later + pending
            await client.post("/esim/profile/cancel", {"profileId": pending[0]})
            assert await listed(client, lifecycleStatus="CANCELLED") == [pending[0]]
            assert await listed(client) == pending
        assert await quiet.audit() == []
