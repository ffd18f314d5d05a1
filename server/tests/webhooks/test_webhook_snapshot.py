"""Do webhooks show an order as /esim/query does? (specification 2.3)"""

from typing import Any

from support.api_client import ApiClient
from support.money.refunds import bought, query, refund
from support.webhook_fixture import Receiver

NEW = ("amount", "createTime", "updateTime")


def as_answered(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the fields that only webhooks have. It has no refundAmount until there is a refund."""
    rest = {name: value for name, value in event.items() if name not in ("eventType", "changeHints")}
    return {"refundAmount": 0} | rest


async def test_event_bodies_equal_the_answer_of_the_query(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    paid, delivered = (await receiver.received(2))[:2]
    assert as_answered(delivered.json) == order
    states = {"deliveryStatus": "PENDING", "orderStatus": "PAID", "updateTime": order["createTime"]}
    items = [{name: value for name, value in one.items() if name != "profiles"} for one in order["items"]]
    assert as_answered(paid.json) == order | states | {"items": [items[0] | {"itemStatus": "PAID"}]}
    assert paid.json["amount"] == "1.80"
    await refund(dealer, order)
    after = await query(dealer, order)
    for event in (await receiver.received(4))[2:]:
        assert as_answered(event.json) == after
        assert (event.json["amount"], event.json["refundAmount"]) == ("1.80", 1.8)
        assert event.verified(dealer.app_secret).snapshot.amount == "1.80"


async def test_test_event_has_the_same_fields(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    assert (await dealer.post("/webhook/test")).data["delivered"]
    await bought(dealer)
    sample, paid = (await receiver.received(2))[:2]
    assert sample.json.keys() == paid.json.keys() >= {*NEW}
    assert sample.json["createTime"] == sample.json["updateTime"]
