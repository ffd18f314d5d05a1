"""Which callback URLs and addresses webhooks may go to: the rules as tables, and /webhook/set, which applies them."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.operations.webhooks import endpoint as webhook
from dealer_server.rules.refusal import CallbackUrlRefused
from dealer_server.rules.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy
from esim_dealer.wire.calls import SetWebhook
from support.webhook_fixture import LOOPBACK, Receiver, WebhookFixture, deliver_all, listening, webhook_fixture

OPEN = Policy()
PRODUCTION = Policy(require_https=True)

GOOD_URLS = [
    "https://dealer.example/hooks",
    "http://dealer.example",
    "https://dealer.example:8443/a/b?c=d&e=%20f",
    "https://dealer.example:443/",
    "http://dealer.example:1024/",
    "http://dealer.example:65535/",
    "https://xn--mnchen-3ya.example/",
    "https://my_host.example./x",
    "https://8.8.8.8/",
    "https://[2606:4700::1111]:8443/",
    "HTTPS://Dealer.Example/",
    "https://no-such-host-yet.invalid/",
]

BAD_URLS = [
    ("dealer.example/hooks", "absolute http(s)"),
    ("/hooks", "absolute http(s)"),
    ("//dealer.example/", "absolute http(s)"),
    ("ftp://dealer.example/", "absolute http(s)"),
    ("file:///etc/passwd", "absolute http(s)"),
    ("javascript:alert(1)", "absolute http(s)"),
    ("gopher://dealer.example/", "absolute http(s)"),
    ("https:/dealer.example", "absolute http(s)"),
    ("https://", "host is missing"),
    ("https:///x", "host is missing"),
    ("https://dealer .example/", "host is missing or malformed"),
    ("https://dealer.example/a b", "absolute http(s)"),
    ("https://dealer.example/\r\nX: y", "absolute http(s)"),
    ("https://dealer.example/\x00", "absolute http(s)"),
    ("https://dealer.example/%zz", "absolute http(s)"),
    ("https://dealer.example\\@evil.example/", "user information"),
    ("https://münchen.example/", "its ASCII form, such as xn--"),
    ("https://①②⑦.0.0.1/", "letters outside ASCII"),
    ("https://user:secret@dealer.example/", "user information"),
    ("https://@dealer.example/", "user information"),
    ("https://dealer.example/#part", "fragment"),
    ("https://dealer.example/#", "fragment"),
    ("https://dealer.example:22/", "port 22"),
    ("https://dealer.example:0/", "port 0"),
    ("https://dealer.example:1023/", "port 1023"),
    ("https://dealer.example:65536/", "port 65536"),
    ("https://dealer.example:-1/", "host is missing or malformed"),
    ("https://-dealer.example/", "is not a host name"),
    ("https://dealer..example/", "is not a host name"),
    (f"https://{'a' * 64}.example/", "is not a host name"),
    (f"https://{'a.' * 127}ab/", "is not a host name"),
    ("https://127.0.0.1/", "not a public one"),
    ("https://10.0.0.1/", "not a public one"),
    ("https://169.254.169.254/latest/meta-data", "not a public one"),
    ("https://[::1]/", "not a public one"),
    ("https://[::ffff:10.0.0.1]/", "not a public one"),
    ("https://[fe80::1]/", "not a public one"),
    ("https://0x7f000001/", "in its usual form"),
    ("https://0x7f.1/", "in its usual form"),
    ("https://2130706433/", "in its usual form"),
    ("https://0177.0.0.1/", "in its usual form"),
    ("https://127.1/", "in its usual form"),
    ("https://127.0.0.1./", "not a public one"),
    ("https://1.2.3.4.5/", "in its usual form"),
    ("https://[1.2.3.4]/", "host is missing or malformed"),
    ("https://localhost/", "this machine"),
    ("https://api.LOCALHOST./", "this machine"),
]

REFUSED_ADDRESSES = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255",
    "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::127.0.0.1",  # unspecified, loopback, the deprecated IPv4-compatible form
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1",
    "64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1:fffe::808:808",
    "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::", "2002:c0a8:101::",  # 6to4 around private addresses
    "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1",
    "100::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1", "4000::1",
    "2606:4700::1111%eth0", "localhost", "dealer.example", "", "127.1", "0x7f.1", "8.8.8.8 ",
]  # fmt: skip

ALLOWED_ADDRESSES = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.0", "168.63.129.17", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.167.255.255", "192.169.0.0",
    "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2001:200::1", "2606:4700::1111", "2a00:1450::1",
    "3ffe:ffff::1",
]  # fmt: skip


@pytest.mark.parametrize("url", GOOD_URLS)
def test_public_url_is_accepted(url: str):
    assert endpoint.fault(url, OPEN) is None


@pytest.mark.parametrize(("url", "rule"), BAD_URLS)
@pytest.mark.parametrize("policy", [OPEN, PRODUCTION])
def test_refused_url_names_the_broken_rule(url: str, rule: str, policy: Policy):
    assert rule in (endpoint.fault(url, policy) or "")


def test_production_requires_https():
    assert endpoint.fault("https://dealer.example/", PRODUCTION) is None
    assert "use https" in (endpoint.fault("http://dealer.example/", PRODUCTION) or "")
    assert "use https" in (endpoint.fault("HTTP://dealer.example/", PRODUCTION) or "")


def test_allow_loopback_accepts_loopback_urls_only():
    for url in ("http://127.0.0.1:8080/", "http://localhost:8080/", "http://[::1]:8080/"):
        assert endpoint.fault(url, LOOPBACK) is None
    for url in ("http://10.0.0.1/", "http://169.254.169.254/", "http://0x7f.1/", "http://[::ffff:10.0.0.1]/"):
        assert endpoint.fault(url, LOOPBACK) is not None


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
def test_non_public_address_is_refused(address: str):
    assert not endpoint.address_allowed(address, OPEN)


@pytest.mark.parametrize("address", ALLOWED_ADDRESSES)
def test_public_address_is_allowed(address: str):
    assert endpoint.address_allowed(address, OPEN)


def test_allow_loopback_allows_loopback_addresses_only():
    loopback = {"127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1"}
    assert {one for one in REFUSED_ADDRESSES if endpoint.address_allowed(one, LOOPBACK)} == loopback


@given(st.ip_addresses(v=4, network="10.0.0.0/8") | st.ip_addresses(v=4, network="192.168.0.0/16"))
def test_private_address_embedded_in_ipv6_is_refused(address):
    number = int(address)
    for wrapped in (f"::ffff:{address}", f"64:ff9b::{address}", f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"):
        assert not endpoint.address_allowed(wrapped, LOOPBACK)


@given(st.text(max_size=60))
def test_any_text_is_checked_without_an_exception(text: str):
    endpoint.fault(text, OPEN)
    endpoint.fault(f"https://{text}/", OPEN)
    endpoint.address_allowed(text, OPEN)


# /webhook/set and /webhook/query


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as webhooks:
        yield webhooks


async def set_url(webhooks: WebhookFixture, tenant_id: int, url: str | None, policy: Policy = LOOPBACK):
    return await webhook.set_webhook(
        webhooks.database, policy, tenant_id, SetWebhook(callback_url=url), webhooks.clock()
    )


async def test_url_is_set_and_read_back_by_its_own_dealer(webhooks: WebhookFixture):
    dealer, stranger = await webhooks.dealer(), await webhooks.dealer()
    answer = await set_url(webhooks, dealer.tenant_id, "https://dealer.example/hooks")
    assert (answer.callback_url, answer.enabled) == ("https://dealer.example/hooks", True)
    state = await webhook.webhook_state(webhooks.database, dealer.tenant_id)
    assert (state.callback_url, state.enabled, state.state) == ("https://dealer.example/hooks", True, "ACTIVE")
    theirs = await webhook.webhook_state(webhooks.database, stranger.tenant_id)
    assert (theirs.callback_url, theirs.enabled, theirs.state) == ("", False, "NOT_SET")


async def test_refused_url_leaves_the_old_one_in_place(webhooks: WebhookFixture):
    dealer = await webhooks.dealer("https://dealer.example/old")
    with pytest.raises(CallbackUrlRefused, match="callbackUrl: port 25 is not accepted"):
        await set_url(webhooks, dealer.tenant_id, "https://dealer.example:25/")
    with pytest.raises(CallbackUrlRefused, match="use https"):
        await set_url(webhooks, dealer.tenant_id, "http://dealer.example/", PRODUCTION)
    assert (await webhooks.endpoint(dealer)).url == "https://dealer.example/old"


@pytest.mark.parametrize("nothing", ["", None])
async def test_removed_url_skips_waiting_and_later_deliveries(
    webhooks: WebhookFixture, receiver: Receiver, nothing: str | None
):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500]
    retrying, waiting = await webhooks.order(dealer), await webhooks.order(dealer, paid_event=False)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        await webhooks.allocate(dealer, waiting)
        answer = await set_url(webhooks, dealer.tenant_id, nothing)
        assert (answer.callback_url, answer.enabled) == ("", False)
        later = await webhooks.order(dealer)
        webhooks.clock.advance(3_600)
        assert await deliver_all(deliverer) == 0
    assert {state for _, state in await webhooks.states(dealer)} == {"SKIPPED"}
    assert len(await webhooks.deliveries(dealer)) == 3 and retrying != later
    state = await webhook.webhook_state(webhooks.database, dealer.tenant_id)
    assert (state.state, state.enabled, state.consecutive_failures) == ("NOT_SET", False, 0)


async def test_url_set_again_after_410_is_enabled_without_failures(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [410, 200]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        gone = await webhook.webhook_state(webhooks.database, dealer.tenant_id)
        assert (gone.state, gone.enabled, gone.consecutive_failures) == ("DISABLED", False, 1)
        await set_url(webhooks, dealer.tenant_id, receiver.url)
        await webhooks.order(dealer)
        await deliver_all(deliverer)
    state = await webhook.webhook_state(webhooks.database, dealer.tenant_id)
    assert (state.state, state.enabled, state.consecutive_failures) == ("ACTIVE", True, 0)
    assert state.last_success_time is not None
    assert [state for _, state in await webhooks.states(dealer)] == ["FAILED", "DELIVERED"]


async def test_new_url_receives_waiting_deliveries(webhooks: WebhookFixture, receiver: Receiver):
    async with listening(1) as [closed]:
        dealer = await webhooks.dealer(closed.url)
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert [one["error"] for one in await webhooks.attempts(dealer)] == ["CONNECT"]
        await set_url(webhooks, dealer.tenant_id, receiver.url)
        webhooks.clock.advance(10)
        await deliver_all(deliverer)
    assert len(receiver.requests) == 1


async def test_url_refused_by_changed_rules_is_not_called(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    async with webhooks.deliverer(PRODUCTION) as deliverer:
        await deliver_all(deliverer)
    assert receiver.connections == 0
    assert [one["error"] for one in await webhooks.attempts(dealer)] == ["ADDRESS_REFUSED"]
