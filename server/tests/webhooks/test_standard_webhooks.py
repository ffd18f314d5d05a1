"""The headers of standard-webhooks beside ours, verified by the library of that name."""

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from dealer_server import clock
from dealer_server.operations.tenants import credentials
from esim_dealer.webhook import verify
from esim_dealer.wire import signing
from support.api_client import ApiClient, Service
from support.webhook_fixture import Receiver


async def test_they_are_sent_where_the_dealer_wants_them(service: Service, dealer: ApiClient, receiver: Receiver):
    plain = (await dealer.post("/webhook/set", {"callbackUrl": receiver.url})).data
    assert plain["standardHeaders"] is False
    await dealer.post("/webhook/test")
    wanted = {"callbackUrl": receiver.url, "standardHeaders": True}
    assert (await dealer.post("/webhook/set", wanted)).data["standardHeaders"] is True
    kept = (await dealer.post("/webhook/set", {"callbackUrl": receiver.url})).data
    assert kept["standardHeaders"] is (await dealer.post("/webhook/query")).data["standardHeaders"] is True
    await dealer.post("/webhook/test")
    await dealer.order()
    updated = await receiver.until(lambda request: request.json["eventType"] == "DELIVERY_UPDATED")
    [without, sample, *_] = receiver.requests
    assert not any(name.startswith("webhook-") for name in without.headers)
    library = Webhook(signing.standard_secret(dealer.app_secret))
    for request in (sample, updated):
        assert library.verify(request.body, request.headers)["eventType"] == request.event
        verify(request.headers, request.body, dealer.app_secret)
        with pytest.raises(WebhookVerificationError):
            library.verify(request.body + b" ", request.headers)
    assert updated.headers["webhook-id"] == updated.headers["rt-delivery-id"]
    assert sample.headers["webhook-id"] != updated.headers["webhook-id"]


async def test_after_a_reset_both_secrets_verify(service: Service, dealer: ApiClient, receiver: Receiver):
    master_keys = service.settings.master_keys
    secret = await credentials.reset_secret(service.database, master_keys, dealer.app_key, "test", clock.now)
    old, dealer.app_secret = dealer.app_secret, secret
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url, "standardHeaders": True})
    await dealer.post("/webhook/test")
    [request] = await receiver.received(1)
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    for each in (old, secret):
        assert Webhook(signing.standard_secret(each)).verify(request.body, request.headers)


async def test_a_word_that_is_neither_true_nor_false_is_refused(dealer: ApiClient):
    reply = await dealer.post("/webhook/set", {"callbackUrl": "", "standardHeaders": "yes"})
    assert reply.code == "000108" and "standardHeaders" in reply.message
