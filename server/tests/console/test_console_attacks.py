"""What strangers, a dealer's people and an operator's readers try at the console, and what they must not get."""

import asyncio
import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from dealer_server import clock
from dealer_server.api.latency import LatencyRecorder
from dealer_server.api.refused_calls import PER_KEY, CallLog
from dealer_server.console import routing
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.cache import Cache
from dealer_server.operations.users import accounts, sessions, sign_in
from dealer_server.operations.users.attempts import ATTEMPTS_PER_NAME
from dealer_server.operations.users.password import Busy, Passwords
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.rules.access import totp
from dealer_server.store.console import api_log as console_api_log
from dealer_server.store.console import user as console_user
from dealer_server.store.tenants import data_key
from support.api_client import ApiClient, Service
from support.browser import PASSWORDS, Browser, said, signed_in
from support.console.onboarding import up_to
from support.console.refused_calls import kept, refuse
from support.patience import PATIENCE
from support.webhook_fixture import Receiver, Request, answer

FORM = "application/x-www-form-urlencoded"
BOMBS = {
    "ten thousand fields": (FORM, b"&".join(b"a%d=1" % one for one in range(10_000))),
    "one long field": (FORM, b"a=" + b"x" * 2_000_000),
    "ten thousand parts": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 10_000 + b"--x--",
    ),
    "headers without end": ("multipart/form-data; boundary=x", b"--x\r\n" + b"X: y\r\n" * 200_000),
}


@pytest.fixture(autouse=True)
async def no_tries(service: Service) -> None:
    """Whatever the test before tried, this one's tries are the first of its address."""
    await value(service, "DELETE FROM console_try")


async def value(service: Service, sql: str, *args: object) -> Any:
    async with service.database.connection() as connection:
        return await connection.fetchval(sql, *args)


async def bought(dealer: ApiClient, **call: Any) -> dict[str, Any]:
    return await dealer.delivered((await dealer.order(**call)).data["orderNo"])


async def form(one: Browser, **fields: str) -> dict[str, str]:
    """A form of this person's, to be sent as often as wanted."""
    return {"csrf": await one.csrf(), "once": secrets.token_hex(16), **fields}


async def statuses(*requests: Any) -> set[int]:
    return {one.status_code for one in await asyncio.gather(*requests)}


async def taken(person: Browser, *sent: Any) -> Any:
    """The answer to a form, sent again while a busy machine asks for that."""
    while (answer := await person.send(*sent)).status_code == 503:
        pass
    return answer


# Codes


async def echo(request: Request, _: asyncio.StreamWriter) -> bytes:
    """Some receivers answer with what they got."""
    return answer(500, body=request.body)


@pytest.mark.parametrize("role", ["readonly", "finance"])
async def test_a_code_that_a_receiver_sends_back_is_for_those_who_may_see_codes(
    service: Service, dealer: ApiClient, receiver: Receiver, role: str
):
    receiver.answers = [echo]
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    matching_id = order["items"][0]["profiles"][0]["activationCode"].split("$")[2]
    delivery_id = await attempted(dealer, order["orderNo"])
    async with signed_in(service, role) as one:
        for path in (f"/console/orders/{order['orderNo']}", f"/console/deliveries/{dealer.tenant_id}/{delivery_id}"):
            page = await one.get(path)
            assert page.status_code == 200 and matching_id not in page.text, path


async def attempted(dealer: ApiClient, order_no: str) -> str:
    """The last delivery of an order, which brings the codes, once it was tried."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await dealer.post("/webhook/delivery/list", {"orderNo": order_no})).data["deliveries"]
            if len(found) == 2 and all(one["attempts"] for one in found):
                return str(max(int(one["deliveryId"]) for one in found))
            await asyncio.sleep(0.05)


async def test_a_code_is_not_seen_without_an_act(service: Service, dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await bought(dealer)
    matching_id = order["items"][0]["profiles"][0]["activationCode"].split("$")[2]
    await receiver.received(2)
    async with signed_in(service, "support") as one:
        page = (await one.get(f"/console/orders/{order['orderNo']}")).text
    looked = "SELECT count(*) FROM audit_log WHERE tenant_id = $1 AND action LIKE '%view_code%'"
    assert matching_id not in page or await value(service, looked, dealer.tenant_id)


# Signing in


async def test_a_name_in_other_letters_is_the_same_name_for_its_tries(service: Service, visitor: Browser):
    name = f"iris-{secrets.token_hex(4)}"
    await accounts.create(service.database, PASSWORDS, None, name, "readonly", "test", "a good password")
    answers = [(await visitor.sign_in(name, "a guess")).status_code for _ in range(11)]
    assert answers == [403] * 10 + [429]
    for other in (name.upper(), name.replace("i", "İ"), name.replace("i", "İ", 1)):
        assert (await visitor.sign_in(other, "a good password")).status_code in (403, 429)
        assert not visitor.token


async def test_a_password_that_was_not_looked_at_was_not_tried(service: Service, admin: Browser):
    now, visitor = clock.now(), Visitor("192.0.2.9", "")
    for _ in range(ATTEMPTS_PER_NAME):
        with pytest.raises(Busy):
            await sign_in.with_password(service.database, Crowded(), admin.name, admin.password, visitor, now)
    await sign_in.with_password(service.database, PASSWORDS, admin.name, admin.password, visitor, now)


class Crowded(Passwords):
    """So many wait that nobody else may."""

    async def fits(self, encoded: str | None, password: str) -> bool:
        raise Busy


async def test_a_session_that_was_ended_takes_no_code(service: Service, admin: Browser):
    """The password was changed while somebody who knows the old one was at the second step."""
    keys, visitor = await keys_of(service), Visitor("127.0.0.1", "")
    async with service.database.connection() as connection:
        secret = secrets.token_bytes(20)
        sealed = keys.seal(secret, f"totp|{admin.user_id}".encode())
        await console_user.set_totp(connection, admin.user_id, sealed, on=True)
    now = clock.now()
    entered = await sign_in.with_password(service.database, PASSWORDS, admin.name, admin.password, visitor, now)
    pending = await sessions.find(service.database, entered.token, now, by_hand=True)
    assert pending is not None and not pending.complete
    async with service.database.connection() as connection:
        await console_user.end_sessions(connection, admin.user_id)
    code = totp.code(secret, totp.step_of(now))
    with pytest.raises(NotSignedIn):
        await sign_in.with_code(service.database, keys, pending, entered.token, code, visitor, now)


async def keys_of(service: Service) -> DataKeys:
    async with service.database.connection() as connection:
        return await data_key.load(connection, service.settings.master_keys)


@pytest.mark.parametrize("name", ["\0", "oper\0ator"])
async def test_a_name_that_no_database_can_hold_is_a_wrong_one(visitor: Browser, name: str):
    assert (await visitor.sign_in(name, "a guess")).status_code == 403


async def test_text_that_no_database_can_hold_breaks_nothing(dealer: ApiClient, admin: Browser):
    home = f"/console/dealers/{dealer.tenant_id}"
    for path, fields in (
        (f"{home}/adjust", {"direction": "add", "amount": "1", "reason": "a \0 gift"}),
        ("/console/users", {"name": "a\0b", "role": "support", "tenant": ""}),
        ("/console/packages/status", {"package": "TEST\0OK"}),
        ("/console/topups/T%00/approve", {}),
        ("/console/suppliers/%00/check", {}),
    ):
        assert (await admin.post(path, fields)).status_code < 500, path
    assert (await admin.get("/console/packages/%00/stock")).status_code == 404
    for path in ("users", "orders", "orders.csv", "profiles", "topups", "refunds", "reports", "webhooks", "audit"):
        assert (await admin.get(f"/console/{path}?dealer=a%00b&q=%00&to=%00")).status_code < 500, path


# What one does to others


async def test_nobody_makes_users_without_end(service: Service, dealer: ApiClient):
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        csrf = await one.csrf()
        for number in range(30):
            fields = {"name": f"crowd-{number}-{dealer.tenant_id}", "role": "finance"}
            await one.send("/console/users", {"csrf": csrf, "once": secrets.token_hex(16), **fields})
    made = await value(service, "SELECT count(*) FROM console_user WHERE tenant_id = $1", dealer.tenant_id)
    assert made < 30


async def test_calls_that_nobody_signed_take_no_signed_one_out_of_the_log(service: Service, dealer: ApiClient):
    refused = await dealer.order(amount="1.00")
    await kept(service, dealer, 1)
    memory = await Cache.open(service.database)
    await memory.load_caller(dealer.app_key)
    for _ in range(console_api_log.KEPT // PER_KEY + 1):
        log = CallLog(service.database, memory, clock.now, ())
        async with log.running():
            for _ in range(PER_KEY):
                refuse(log, dealer.app_key)
    async with service.database.connection() as connection:
        assert await console_api_log.list_calls(
            connection, dealer.tenant_id, console_api_log.CallFilter(refused.code), None, console_api_log.KEPT
        )


async def test_a_reason_is_no_book(service: Service, dealer: ApiClient, admin: Browser):
    profile_id = (await bought(dealer))["items"][0]["profiles"][0]["profileId"]
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        await one.post(f"/console/profiles/{profile_id}/cancel", {"reason": "x" * 900_000})
    await admin.post(f"/console/dealers/{dealer.tenant_id}/adjust", {"amount": "1", "reason": "x" * 900_000})
    longest = "SELECT max(length(detail::text)) FROM audit_log WHERE tenant_id = $1"
    assert await value(service, longest, dealer.tenant_id) < 10_000


async def test_what_is_void_already_is_not_cancelled_once_more_in_the_audit_log(service: Service, dealer: ApiClient):
    profile_id = (await bought(dealer))["items"][0]["profiles"][0]["profileId"]
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        for _ in range(3):
            await one.post(f"/console/profiles/{profile_id}/cancel", {"reason": "again"})
    acts = "SELECT count(*) FROM audit_log WHERE tenant_id = $1 AND action = 'profile.cancel'"
    assert await value(service, acts, dealer.tenant_id) == 1


async def test_nobody_resets_themselves(service: Service, dealer: ApiClient):
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        await one.post(f"/console/users/{one.user_id}/reset")
        assert (await one.get("/console/users")).status_code == 200


@pytest.mark.parametrize("mark", ["\u200b", "\u202e", "\u2066", "\ufeff"])
async def test_a_name_has_no_marks_that_are_not_seen(service: Service, dealer: ApiClient, mark: str):
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        name = f"oper{mark}ator{dealer.tenant_id}"
        assert "mail address" in said(await one.refused("/console/users", {"name": name, "role": "finance"}))


@pytest.mark.parametrize("path", ["/%63onsole/sign-in", "/console%2fsign-in", "/%2fconsole/sign-in"])
async def test_the_console_is_at_its_own_path_as_it_is_written(visitor: Browser, path: str):
    assert (await visitor.get(path)).status_code == 404


async def test_only_pages_that_take_files_take_much(service: Service, dealer: ApiClient):
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        assert await sent(one, FORM, b"&" * 2_000_000) == 413


async def sent(one: Browser, media_type: str, body: bytes) -> int:
    path = f"{one.url}/console/wallet/threshold"
    return (await one.http.post(path, content=body, headers={"Content-Type": media_type})).status_code


# Latency


async def test_what_is_old_is_swept_away_however_few_calls_there_are(service: Service):
    at = [datetime(2026, 10, 1, 8, 15, 30, tzinfo=UTC)]
    meter = LatencyRecorder(service.database, lambda: at[0])
    for _ in range(3):
        meter.answered(False, 0.001, 200)
        await meter.flush()
        at[0] += timedelta(seconds=30)
        await meter.flush()
        at[0] += timedelta(days=3, seconds=30)
        await meter.flush()
    assert await value(service, "SELECT count(*) FROM api_minute WHERE minute < '2026-10-05'") == 0


# Tried, and refused


async def test_whatever_is_sent_many_times_at_once_is_done_once(service: Service, dealer: ApiClient, admin: Browser):
    """By one form: a credit, a dealer, a secret. By many forms: a top-up, a refund."""
    home, name = f"/console/dealers/{dealer.tenant_id}", f"once-{secrets.token_hex(4)}"
    order = (await bought(dealer))["orderNo"]
    asked = {"transactionId": f"t-{secrets.token_hex(4)}", "amount": "10.00", "payMethod": "CARD"}
    topup = (await dealer.post("/account/topup", asked)).data["topupNo"]
    credit = await form(admin, direction="add", amount="1.00", reason="a gift")
    made, last = await form(admin), await up_to(admin, "review", name=name, balance="5")
    reset = await form(admin)
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        answered = await statuses(
            *(taken(admin, f"{home}/adjust", credit) for _ in range(30)),
            *(taken(admin, last, made) for _ in range(30)),
            *(taken(admin, f"{home}/credentials/{dealer.app_key}/reset", reset) for _ in range(30)),
            *[
                taken(admin, f"/console/topups/{topup}/{word}", await form(admin, reason="x"))
                for word in ("approve", "reject") * 10
            ],
            *[taken(one, f"/console/orders/{order}/refund", await form(one, reason="x")) for _ in range(20)],
        )
    assert answered == {303}
    assert await value(service, "SELECT count(*) FROM tenant WHERE name = $1", name) == 1
    assert await value(service, "SELECT secret_version FROM credential WHERE app_key = $1", dealer.app_key) == 2
    credited = await value(service, "SELECT status = 'APPROVED' FROM topup WHERE tenant_id = $1", dealer.tenant_id)
    balance = await value(service, "SELECT balance FROM wallet WHERE tenant_id = $1", dealer.tenant_id)
    assert balance == 10_010_000 + 100_000 * credited
    assert await service.audit() == []


async def test_no_odd_path_is_a_way_around_the_roles(service: Service, dealer: ApiClient, stranger: ApiClient):
    """A slash at the end leads to the address without it, whoever asks: that shows nothing, and the page is refused."""
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        for path in (
            *("/console//users", "/console/users/", "/console/Users", "/console/users;a=b", "/console/users%2f"),
            *("/console/users%3f", "/console/users%23", "/console/users%00", "/CONSOLE/users", "//console/users"),
            *("/console/%75sers", "/console/users%0a", "/console/account/%2e%2e/users", "/console/account/..%2fusers"),
            f"/console/dealers/{stranger.tenant_id}",
            f"/console/dealers/{stranger.tenant_id}//",
            f"/console/dealers%2f{stranger.tenant_id}",
        ):
            for headers in ({}, {"HX-Request": "true"}):
                for method in ("GET", "HEAD"):
                    found = await one.http.request(method, f"{one.url}{path}", headers=headers)
                    if found.status_code == 308:
                        bare = re.sub("(/|%2f)+$", "", path)
                        assert (found.content, found.headers["location"]) == (b"", bare), (method, path)
                        found = await one.http.request(method, f"{one.url}{bare}", headers=headers)
                    assert found.status_code in (403, 404), (method, path, found.status_code)


async def test_no_write_of_another_kind_of_people_is_made_whatever_the_path_holds(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    """Every form that is the operators' alone, sent by an admin of a dealer."""
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        csrf = await one.csrf()
        for page in routing.declared_pages():
            if page.method == "GET" or "dealer:admin" in page.roles:
                continue
            path = re.sub(r"\{tenant_id\}", str(stranger.tenant_id), page.path)
            path = re.sub(r"\{app_key\}", stranger.app_key, path)
            answered = await one.send(re.sub(r"\{\w+\}", "1", path), {"csrf": csrf, "once": secrets.token_hex(16)})
            assert answered.status_code in (303, 403, 404), path
            if answered.status_code == 303:
                assert said(await one.get(answered.headers["location"])) != "", path
    assert (await stranger.post("/account/balance")).data["balance"] == "1000.00"


@pytest.mark.parametrize("bomb", list(BOMBS))
async def test_a_form_that_is_a_bomb_is_too_much(service: Service, dealer: ApiClient, bomb: str):
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        assert await sent(one, *BOMBS[bomb]) == 413
        assert (await one.get("/console")).status_code == 200


async def test_who_must_change_the_password_is_kept_there_though_sure(service: Service, visitor: Browser):
    """With a slash at its end an address takes no form, and leads to the address without it."""
    made = await accounts.create(service.database, PASSWORDS, None, f"new-{secrets.token_hex(4)}", "admin", "test")
    await visitor.sign_in(made.name, made.password)
    page: httpx2.Response = await visitor.get("/console/account/password")
    csrf = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert csrf
    for path in ("/console/users", "/console/account/totp", "/console/sign-in/code"):
        fields = {"csrf": csrf[1], "once": secrets.token_hex(16), "sure_password": made.password, "sure_for": "POST"}
        for slashed in (f"{path}/", "/console/account/password/"):
            assert (await visitor.send(slashed, fields)).status_code == 404
            led = await visitor.get(slashed)
            assert (led.status_code, led.content, led.headers["location"]) == (308, b"", slashed[:-1])
        for answered in (await visitor.send(path, fields), await visitor.get(path)):
            assert answered.status_code == 303 and answered.headers["location"] == "/console/account/password"
