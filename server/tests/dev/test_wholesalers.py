"""The made-up suppliers of `dealer-server dev`, and what they made of made-up orders."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from dealer_server.dev import catalogue, history, lives, purchases, wholesalers
from dealer_server.dev.wholesalers import FIRST, SECOND, RtServer

NOW = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
PACKAGES = {package.package_code: package for package in catalogue.catalogue("test")}
CODE = history.POPULAR[0]


class Time:
    """Seconds since the epoch."""

    def __init__(self) -> None:
        self.now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


def _asked(server: RtServer, operation: str, **content: Any) -> Any:
    said = server.answer(FIRST, operation, content)
    assert said["success"], said
    return said["obj"]


def _the_esim(server: RtServer, order_no: str) -> dict[str, Any]:
    [esim] = _asked(server, "esim/query", orderNo=order_no)["esimList"]
    return esim


def test_each_delivered_esim_was_made_by_one_supplier_at_a_gain_and_one_that_failed_by_none():
    sold = history.sold(history.DEMO, PACKAGES, 30, NOW)
    orders = [lives.lived(order, number, NOW) for number, order in enumerate(sold, 1)]
    made = list(purchases.purchases(1, orders, PACKAGES))
    done = Counter(one.profile_id for one in made if one.state == "DONE")
    delivered = [profile for order in orders if order.delivered_at for profile in order.order.profiles]
    assert done == Counter(profile.profile_id for profile in delivered)
    assert {profile.profile_id: profile.iccid for profile in delivered} == {
        one.profile_id: one.iccid for one in made if one.state == "DONE"
    }
    failed = {profile.profile_id for order in orders if not order.delivered_at for profile in order.order.profiles}
    assert failed and Counter(one.profile_id for one in made if one.profile_id in failed) == dict.fromkeys(failed, 2)
    assert {one.supplier for one in made if one.state == "DONE"} == {FIRST.code, SECOND.code}
    assert all(0 < one.cost < PACKAGES[one.sku].price for one in made)
    assert all(call.sent_at <= call.answered_at for one in made for call in one.calls)


def test_a_supplier_sells_each_transaction_once_and_its_esim_lives():
    time = Time()
    server = RtServer({CODE: PACKAGES[CODE]}, time)
    bought = {"transactionId": "u-1-0-1", "packageInfoList": [{"packageCode": CODE, "count": 1}]}
    order_no = _asked(server, "esim/order", **bought)["orderNo"]
    assert _asked(server, "esim/order", **bought)["orderNo"] == order_no
    assert server.answer(FIRST, "esim/order", {**bought, "packageInfoList": [{"packageCode": "none"}]})["errorCode"]
    states: list[tuple[str, str]] = []
    for hours in (0, 0.2, 1, 24, 24 * 6, 24 * 40):
        time.now = NOW.timestamp() + hours * 3_600
        esim = _the_esim(server, order_no)
        states.append((esim["esimStatus"], esim["smdpStatus"]))
        [usage] = _asked(server, "esim/usage/query", esimTranNoList=[esim["esimTranNo"]])
        assert usage["dataUsage"] == esim.get("orderUsage", 0) <= (PACKAGES[CODE].data_bytes or 0)
    assert states == [
        ("GOT_RESOURCE", "RELEASED"), ("GOT_RESOURCE", "INSTALLATION"), ("IN_USE", "ENABLED"), ("IN_USE", "ENABLED"),
        ("USED_UP", "ENABLED"), ("USED_EXPIRED", "ENABLED"),
    ]  # fmt: skip


def test_an_esim_of_the_past_is_taken_back():
    server = RtServer({CODE: PACKAGES[CODE]})
    order_no = wholesalers.past_order_no(4_711)
    esim = _the_esim(server, order_no)
    assert (esim["iccid"], esim["esimStatus"]) == (wholesalers.past_iccid(4_711), "GOT_RESOURCE")
    _asked(server, "esim/cancel", esimTranNo=esim["esimTranNo"])
    assert _the_esim(server, order_no)["esimStatus"] == "CANCEL"
