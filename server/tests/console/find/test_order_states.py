"""An order has one state on a page: in its lists, and on its own page; its words of the contract are pointed at."""

import csv
import io
from typing import NamedTuple, get_args

import pytest

from dealer_server.console.shared import words
from esim_dealer.wire.vocabulary import DeliveryStatus, OrderStatus
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.money.refunds import bought, refund

STATES = {
    ("PAID", "PENDING"): "Paid",
    ("FULFILLING", "PENDING"): "Being delivered",
    ("FULFILLING", "PARTIAL"): "Partly delivered",
    ("COMPLETED", "DELIVERED"): "Delivered",
    ("COMPLETED", "PENDING"): "Completed",
    ("COMPLETED", "FAILED"): "Failed",
    ("REFUNDING", "DELIVERED"): "Being refunded",
    ("REFUNDED", "DELIVERED"): "Refunded",
    ("REFUNDED", "FAILED"): "Failed, refunded",
}


@pytest.mark.parametrize(("raw", "text"), STATES.items())
def test_the_status_that_says_more_is_the_state(raw: tuple[str, str], text: str) -> None:
    state = words.order_state(*raw)
    assert (state.text, state.raw) == (text, f"orderStatus {raw[0]}, deliveryStatus {raw[1]}")


def test_every_pair_of_statuses_has_words_and_only_a_failure_a_colour() -> None:
    for order in get_args(OrderStatus):
        for delivery in get_args(DeliveryStatus):
            state = words.order_state(order, delivery)
            assert not state.text.isupper() and state.text[0].isupper()
            assert (state.tone == "bad") == (state.text == "Failed")


class Esim(NamedTuple):
    failed: bool = False
    refunded: bool = False
    held: bool = False
    lifecycle_status: str = "DELIVERED"
    plan_use_status: str = "NOT_STARTED"
    smdp_status: str | None = "RELEASED"
    data_total_bytes: int | None = 100
    data_usage_bytes: int = 0


class Item(NamedTuple):
    item_status: str
    profiles: tuple[Esim, ...] = (Esim(), Esim())


ITEMS = {
    Item("PENDING"): "Waiting",
    Item("DELIVERED"): "Delivered",
    Item("ACTIVATING"): "Delivered",
    Item("ACTIVATED"): "Delivered",
    Item("FAILED"): "Failed",
    Item("DELIVERED", (Esim(held=True), Esim())): "Delivered",
    Item("DELIVERED", (Esim(held=True), Esim(held=True))): "Being refunded",
    Item("REFUNDED"): "Refunded",
    Item("REFUNDED", (Esim(failed=True, refunded=True),)): "Failed, refunded",
}


@pytest.mark.parametrize(("item", "text"), ITEMS.items())
def test_an_item_says_what_its_order_and_its_esims_say(item: Item, text: str) -> None:
    """Not "Being activated" where one of its delivered eSIMs is in use."""
    state = words.item_state(item)
    assert (state.text, state.raw) == (text, f"itemStatus {item.item_status}")


ESIMS = {
    Esim(lifecycle_status="PENDING"): ("Waiting", "busy"),
    Esim(): ("Not installed", "idle"),
    Esim(smdp_status="INSTALLATION"): ("Installed", "busy"),
    Esim(plan_use_status="STARTED", data_usage_bytes=79): ("In use", "good"),
    Esim(plan_use_status="STARTED", data_usage_bytes=80): ("Nearly used", "warning"),
    Esim(plan_use_status="STARTED", data_usage_bytes=80, data_total_bytes=None): ("In use", "good"),
    Esim(plan_use_status="STARTED", data_usage_bytes=100): ("Used up", "done"),
    Esim(plan_use_status="ENDED", data_usage_bytes=101): ("Used up", "done"),
    Esim(plan_use_status="ENDED", data_usage_bytes=99): ("Ended", "done"),
    Esim(plan_use_status="ENDED", data_total_bytes=None): ("Ended", "done"),
    Esim(lifecycle_status="CANCELLED", plan_use_status="STARTED"): ("Cancelled", "done"),
    Esim(failed=True, lifecycle_status="PENDING"): ("Failed", "bad"),
    Esim(failed=True, refunded=True, lifecycle_status="CANCELLED"): ("Failed, refunded", "lost"),
    Esim(refunded=True, lifecycle_status="CANCELLED"): ("Refunded", "done"),
    Esim(held=True): ("Being refunded", "busy"),
}


@pytest.mark.parametrize(("esim", "shown"), ESIMS.items())
def test_an_esim_says_how_far_it_is(esim: Esim, shown: tuple[str, str]) -> None:
    state = words.esim_state(esim)
    assert (state.text, state.tone) == shown


async def test_lists_and_pages_of_both_sides_show_it_once(service: Service, dealer: ApiClient, admin: Browser) -> None:
    delivered, refunded = await bought(dealer), await bought(dealer)
    await refund(dealer, refunded)
    shown = {
        delivered["orderNo"]: 'title="orderStatus COMPLETED, deliveryStatus DELIVERED">Delivered</span>',
        refunded["orderNo"]: 'title="orderStatus REFUNDED, deliveryStatus DELIVERED">Refunded</span>',
    }
    async with signed_in(service, "finance", dealer.tenant_id) as theirs:
        for browser, path in ((theirs, "/console/orders"), (admin, f"/console/orders?dealer={dealer.tenant_id}")):
            text = (await browser.get(path)).text
            for order_no, badge in shown.items():
                row = text.partition(f'<tr data-href="/console/orders/{order_no}"')[2].partition("</tr>")[0]
                assert badge in row and row.count('class="badge') == 1
                page = (await browser.get(f"/console/orders/{order_no}")).text
                assert page.count(badge) == 1
        rows = list(csv.DictReader(io.StringIO((await theirs.get("/console/orders.csv")).text)))
    assert [(row["orderStatus"], row["deliveryStatus"]) for row in rows] == [
        ("REFUNDED", "DELIVERED"),
        ("COMPLETED", "DELIVERED"),
    ]
