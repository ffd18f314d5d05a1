"""The business that a new data folder of `dealer-server dev` begins with."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import msgspec
import pytest

from dealer_server.dev import catalogue, history, lives
from dealer_server.dev.run import Demo
from dealer_server.rules.lifecycle.use import USES, use
from dealer_server.rules.orders import identity
from support.api_client import ApiClient
from support.databases import postgres_folder
from support.processes import environment, run, running

NOW = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
PACKAGES = {package.package_code: package for package in catalogue.catalogue("test")}


@pytest.fixture
def folder() -> Iterator[Path]:
    with postgres_folder() as one:
        yield one


def test_orders_fill_the_days_before_now_and_no_two_profiles_have_the_same_id():
    dealers = (history.DEMO, *history.OTHERS)
    orders = [order for dealer in dealers for order in history.sold(dealer, PACKAGES, 30, NOW)]
    assert set(history.POPULAR) == {order.package.package_code for order in orders}
    ids = sorted(
        profile_id for order in orders for profile_id in range(order.order_id, order.order_id + order.quantity)
    )
    assert all(one < following for one, following in itertools.pairwise(ids))
    days = {identity.created_at(one).date() for one in ids}
    assert days == {(NOW - timedelta(days=n)).date() for n in range(31)}
    assert all(
        NOW - timedelta(days=31) < identity.created_at(one.order_id) + timedelta(seconds=one.delivered_seconds) <= NOW
        for one in orders
    )


def test_every_folder_begins_with_the_same_business():
    first, again = (history.sold(history.DEMO, PACKAGES, 5, NOW) for _ in range(2))
    assert first == again != history.sold(history.OTHERS[0], PACKAGES, 5, NOW)


def test_esims_live_as_their_orders_ids_tell_and_in_every_way_there_is():
    sold = history.sold(history.DEMO, PACKAGES, 30, NOW)
    first, again = ([lives.lived(one, number, NOW) for number, one in enumerate(sold, 1)] for _ in range(2))
    assert [(one.lives, one.events, one.reported) for one in first] == [
        (one.lives, one.events, one.reported) for one in again
    ]
    orders = [one.order for one in first]
    uses = {use(esim) for order in orders for esim in order.profiles if not esim.cancelled}
    assert uses == set(USES) - {"PENDING"}
    assert {order.delivery_status for order in orders} == {"DELIVERED", "FAILED"}
    for one in first:
        assert [version for _, version, _ in one.told] == sorted(version for _, version, _ in one.told)
        assert one.told[-1][1] == one.order.version and one.order.updated_at <= NOW
        assert one.order.refund_amount == (one.order.amount if one.refund else 0)


async def test_dev_begins_with_it_and_goes_on_from_there(folder: Path):
    arguments = ("dev", "--json", "--port", "0", "--data", str(folder / "data"), "--history", "5")
    counted: list[int] = []
    for _ in range(2):  # the second start finds the folder as the first one left it
        async with running(*arguments, env=environment(None), ready=False) as process:
            text = await process.line()
            assert text, process.said
            said = msgspec.json.decode(text, type=Demo)
            async with httpx2.AsyncClient(trust_env=False) as http:
                client = ApiClient(said.base_url, int(said.tenant_id), said.app_key, said.app_secret, http)
                counted.append((await client.post("/esim/order/list")).data["pager"]["total"])
                placed = await client.order()
                assert (await client.delivered(placed.data["orderNo"]))["orderStatus"] == "COMPLETED"
            env = environment(None) | said.env
            listed = await run("tenant", "list", env=env)
            assert all(dealer.name in listed.out for dealer in history.OTHERS)
            audited = await run("audit", env=env)
            assert audited.status == 0, audited.out
    assert counted[1] == counted[0] + 1 > 20
