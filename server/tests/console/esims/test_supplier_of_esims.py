"""Lists, pages and files name the supplier that made an eSIM, whichever was asked first."""

from collections.abc import AsyncIterator

import pytest

from support.browser import signed_in
from support.console.operator_pages import see
from support.suppliers.purchases import PurchaseFixture, purchase_fixture


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template, refund_failed=False) as market:
        yield market
        assert await market.service.audit() == []


async def named_everywhere(market: PurchaseFixture, order_no: str) -> dict[str, tuple[bool, bool]]:
    """Whether the pages of the order and of its one eSIM name rt:near and rt:far as its supplier. The page of an order
    that failed says whom we asked, in its place."""
    [(profile_id,)] = await market.rows("SELECT profile_id FROM profile")
    async with signed_in(market.service) as admin:
        listed = (await admin.get("/console/profiles")).text
        file = (await admin.get("/console/profiles.csv")).text
        order = await see(admin, f"/console/orders/{order_no}")
        esim = await see(admin, f"/console/profiles/{profile_id}")
    pages = {
        "list": listed[listed.index("<tbody>") :],
        "file": file,
        "eSIM": esim[esim.index(" Supplier ") :][:30],
    }
    if " Supplier " in order:
        pages["order"] = order[order.index(" Supplier ") :][:30]
    return {name: ("rt:near" in text, "rt:far" in text) for name, text in pages.items()}


async def test_an_esim_that_the_second_supplier_made_is_its_own_everywhere(market: PurchaseFixture):
    market.near.fault("esim/order", "200011")
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    assert await market.states() == [("rt:near", "REJECTED"), ("rt:far", "DONE")]
    named = await named_everywhere(market, order_no)
    assert set(named.values()) == {(False, True)} and "order" in named


async def test_an_esim_that_nobody_made_is_of_the_one_asked_last(market: PurchaseFixture):
    market.near.fault("esim/order", "200011")
    market.far.fault("esim/order", "200011")
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    assert await market.states() == [("rt:near", "REJECTED"), ("rt:far", "REJECTED")]
    assert set((await named_everywhere(market, order_no)).values()) == {(False, True)}


async def test_an_esim_that_was_bought_at_once_is_of_the_first(market: PurchaseFixture):
    order_no = (await market.client.order()).data["orderNo"]
    await market.client.delivered(order_no)
    assert set((await named_everywhere(market, order_no)).values()) == {(True, False)}
