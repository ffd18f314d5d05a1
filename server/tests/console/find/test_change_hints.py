"""A dealer reads in words what a webhook says has changed; the hint itself is where the word is pointed at."""

import re
from typing import get_args

from dealer_server.console.shared import words
from esim_dealer.wire.vocabulary import ChangeHint
from support.api_client import ApiClient, Service
from support.browser import signed_in
from support.money.refunds import bought
from support.webhook_fixture import listening


def test_every_hint_has_its_word() -> None:
    assert set(words.HINTS) == set(get_args(ChangeHint))
    assert len(set(words.HINTS.values())) == len(words.HINTS)
    for hint, text in words.HINTS.items():
        assert words.text(hint) == text and not text.isupper() and "_" not in text


async def test_a_delivery_and_the_orders_timeline_say_it(service: Service, dealer: ApiClient) -> None:
    async with listening(1) as [receiver]:
        await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
        order = await bought(dealer)
        await receiver.received(2)
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        page = (await one.get(f"/console/orders/{order['orderNo']}")).text
        assert re.search("eSIM delivered</(div|span)>", page) and "ICCID_READY" not in page
    async with signed_in(service) as admin:
        listed = (await admin.get(f"/console/webhooks?dealer={dealer.tenant_id}")).text
        paths = re.findall(r'data-href="(/console/deliveries/\d+/\d+)"', listed)
        pages = [(await admin.get(path)).text for path in paths]
    assert any(": ICCID_READY" in page for page in pages)
