"""Who gets into the console, for how long, and to which pages? Over HTTP, as a browser does it."""

import asyncio
import base64
import json
import re
import secrets
import socket
from datetime import timedelta

import httpx2
import pytest

from dealer_server import clock
from dealer_server.console import routing
from dealer_server.console.auth.sign_in import local
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import accounts, attempts, sessions, sign_in
from dealer_server.operations.users.password import Passwords
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.rules.access import access, totp
from support import raw_http
from support.api_client import ApiClient, Service, running_service
from support.browser import PASSWORDS, ROLES, Browser, browser, said, signed_in
from support.patience import PATIENCE
from support.processes import environment, run

PAGES = routing.declared_pages()
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'"
)
WRONG = "The name or the password is wrong."


@pytest.fixture(autouse=True)
async def no_tries(service: Service) -> None:
    """Whatever the test before tried, this one's tries are the first of its address."""
    await change(service, "DELETE FROM console_try")


async def change(service: Service, sql: str, *args: object) -> None:
    async with service.database.connection() as connection:
        await connection.execute(sql, *args)


async def rows(service: Service, sql: str, *args: object) -> list[tuple[object, ...]]:
    async with service.database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql, *args)]


async def minutes_pass(service: Service, one: Browser, minutes: int) -> None:
    """For everything that is remembered of this person."""
    columns = ", ".join(f"{name} = {name} - $2::interval" for name in ("created_at", "seen_at", "sure_at"))
    await change(
        service, f"UPDATE console_session SET {columns} WHERE user_id = $1", one.user_id, timedelta(minutes=minutes)
    )


def is_inside(page: httpx2.Response) -> bool:
    return page.status_code == 200 and "Active sessions" in page.text


def leads_to_sign_in(page: httpx2.Response) -> bool:
    return page.status_code == 303 and page.headers["location"].startswith("/console/sign-in")


# Getting in


async def test_whoever_gives_name_and_password_is_inside(service: Service, visitor: Browser) -> None:
    made = await accounts.create(
        service.database, PASSWORDS, None, "Ann@Example.com", "admin", "test", "a good password"
    )
    answer = await visitor.sign_in("ann@example.COM", made.password)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    assert is_inside(await visitor.get("/console/account"))
    [act] = await rows(
        service,
        "SELECT author, source FROM audit_log WHERE action = 'user.sign_in' ORDER BY audit_id DESC LIMIT 1",
    )
    assert act == ("console:Ann@Example.com", "127.0.0.1")


@pytest.mark.parametrize("path", ["/console", "/console/users", "/console/account", "/console/nothing-such"])
async def test_without_a_session_every_page_leads_to_the_sign_in(visitor: Browser, path: str) -> None:
    assert leads_to_sign_in(await visitor.get(path))
    assert leads_to_sign_in(await visitor.send(path))


async def test_after_the_sign_in_comes_the_page_that_was_asked_for(admin: Browser, visitor: Browser) -> None:
    asked = (await visitor.get("/console/users?page=2")).headers["location"]
    answer = await visitor.sign_in(
        admin.name, admin.password, next=asked.partition("next=")[2].replace("%3F", "?").replace("%3D", "=")
    )
    assert answer.headers["location"] == "/console/users?page=2"


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example/console",
        "/console/../..//x\\y",
        "/console\n",
        "javascript:1",
        "/other",
        "",
    ],
)
async def test_nobody_is_led_elsewhere(admin: Browser, visitor: Browser, path: str) -> None:
    assert local(path) == "/console"
    assert (await visitor.sign_in(admin.name, admin.password, next=path)).headers["location"] == "/console"


async def test_wrong_unknown_and_disabled_are_one_answer(service: Service, admin: Browser, visitor: Browser) -> None:
    await accounts.create(service.database, PASSWORDS, None, "gone", "support", "test", "a good password")
    await change(service, "UPDATE console_user SET status = 'DISABLED' WHERE name = 'gone'")
    tries = [
        (admin.name, "not this one"),
        ("nobody-at-all", "not this one"),
        ("gone", "a good password"),
        ("", ""),
        ("a" * 5000, "b" * 5000),
    ]
    for name, password in tries:
        answer = await visitor.sign_in(name, password)
        assert (answer.status_code, said(answer)) == (403, WRONG)
        assert not visitor.token


async def test_of_an_unknown_name_a_password_is_hashed_too() -> None:
    """The work is the same: what is verified is a hash of the same cost."""
    dear = Passwords()
    assert dear._dummy.split("$")[1:4] == (await dear.hash("x")).split("$")[1:4]
    assert not await dear.fits(None, "x")


async def test_a_session_is_new_at_each_sign_in(service: Service, visitor: Browser, admin: Browser) -> None:
    """Whoever plants a token in somebody's browser knows nothing about the session that follows."""
    planted = admin.token
    visitor.http.cookies.set("dealer_console", planted, domain="127.0.0.1", path="/console")
    made = await accounts.create(service.database, PASSWORDS, None, f"v-{secrets.token_hex(4)}", "support", "test")
    answer = await visitor.sign_in(made.name, made.password)
    assert "dealer_console" in answer.headers["set-cookie"] and planted not in answer.headers["set-cookie"]
    assert leads_to_sign_in(await admin.get("/console/account")), "the planted session ended"


async def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(admin: Browser, visitor: Browser) -> None:
    cookie = (await visitor.sign_in(admin.name, admin.password)).headers["set-cookie"].lower()
    assert {"httponly", "samesite=lax", "path=/console"} <= {part.strip() for part in cookie.split(";")}
    assert "secure" not in cookie, "plain HTTP on loopback, for trial"


async def test_elsewhere_the_cookie_goes_over_tls_alone(database_url: str, unused_port: int) -> None:
    changed = {"public_url": "https://dealers.example", "port": unused_port}
    async with running_service(database_url, worker=False, **changed) as service, browser(service) as one:
        one.url = f"http://127.0.0.1:{unused_port}"
        made = await accounts.create(service.database, PASSWORDS, None, f"t-{secrets.token_hex(4)}", "admin", "test")
        assert "secure" in (await one.sign_in(made.name, made.password)).headers["set-cookie"].lower()


TLS = "max-age=31536000"


async def test_who_comes_by_tls_through_a_trusted_proxy_stays_with_tls(database_url: str) -> None:
    """Also where the public address is not set, as on a test environment."""
    async with running_service(database_url, worker=False, trusted_proxies="127.0.0.1") as service:
        made = await accounts.create(service.database, PASSWORDS, None, f"h-{secrets.token_hex(4)}", "admin", "test")
        for proto, encrypted in (("https", True), ("http, https", True), ("https, http", False), ("http", False)):
            async with browser(service) as one:
                one.http.headers["X-Forwarded-Proto"] = proto
                page, inside = await one.get("/console/sign-in"), await one.sign_in(made.name, made.password)
                assert page.headers.get("strict-transport-security") == (TLS if encrypted else None)
                assert ("secure" in inside.headers["set-cookie"].lower()) == encrypted


async def test_nobody_else_is_believed_about_tls(visitor: Browser) -> None:
    page = await visitor.get("/console/sign-in", **{"X-Forwarded-Proto": "https"})
    assert "strict-transport-security" not in page.headers


async def test_of_a_proxy_that_says_nothing_the_public_address_does(database_url: str, unused_port: int) -> None:
    changed = {"public_url": "https://dealers.example", "port": unused_port, "trusted_proxies": "127.0.0.1"}
    async with running_service(database_url, worker=False, **changed) as service, browser(service) as one:
        one.url = f"http://127.0.0.1:{unused_port}"
        assert (await one.get("/console/sign-in")).headers["strict-transport-security"] == TLS


@pytest.mark.parametrize(
    ("scheme", "peer", "said", "encrypted"),
    [
        ("https", "203.0.113.7", [], True),
        ("https", "10.0.0.1", ["http"], True),
        ("http", "203.0.113.7", ["https"], False),
        ("http", "10.0.0.1", ["https"], True),
        ("http", "::ffff:10.0.0.1", ["HTTPS"], True),
        ("http", "10.0.0.1", ["http", "https"], True),
        ("http", "10.0.0.1", ["https", "http"], False),
        ("http", "10.0.0.1", [""], False),
        ("http", "10.0.0.1", [], False),
        ("http", "", ["https"], False),
    ],
)
async def test_a_connection_is_encrypted_here_or_by_a_trusted_word(
    scheme: str, peer: str, said: list[str], encrypted: bool
) -> None:
    assert access.came_by_tls(scheme, peer, said, access.networks(["10.0.0.0/8"])) == encrypted


async def test_the_token_is_not_in_the_database(service: Service, admin: Browser) -> None:
    [(hashes,)] = await rows(
        service, "SELECT array_agg(token_hash) FROM console_session WHERE user_id = $1", admin.user_id
    )
    assert hashes == [sessions.token_hash(admin.token)]
    assert admin.token.encode() not in hashes


# Guessing


async def test_a_name_may_be_tried_ten_times_in_a_quarter_of_an_hour_from_one_address(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    answers = [(await visitor.sign_in(admin.name, f"guess {number}")).status_code for number in range(12)]
    assert answers == [403] * 10 + [429] * 2
    refused = await visitor.sign_in(admin.name, admin.password)
    assert refused.status_code == 429 and 0 < int(refused.headers["retry-after"]) <= 900
    await change(service, "UPDATE console_try SET since = since - interval '15 minutes'")
    assert (await visitor.sign_in(admin.name, admin.password)).status_code == 303


async def test_wrong_passwords_from_elsewhere_lock_nobody_out(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    for number in range(2):
        elsewhere = Visitor(f"192.0.2.{number}", "")
        guesses = [
            sign_in.with_password(service.database, PASSWORDS, admin.name, f"guess {guess}", elsewhere, clock.now())
            for guess in range(11)
        ]
        said = await asyncio.gather(*guesses, return_exceptions=True)
        assert sorted(type(one).__name__ for one in said) == ["NotSignedIn"] * 10 + ["TooManyTries"]
    assert (await visitor.sign_in(admin.name, admin.password)).status_code == 303


async def test_many_tries_of_a_name_make_it_slower_up_to_a_bound() -> None:
    assert [attempts.delay_seconds(tries) for tries in (0, 10, 11, 20, 21, 31, 51, 10**9)] == [
        0,
        0,
        0.25,
        0.25,
        0.5,
        1,
        4,
        4,
    ]


async def test_a_browser_that_is_known_is_not_kept_out_by_others_at_its_address(
    admin: Browser, visitor: Browser
) -> None:
    answers = [(await visitor.sign_in(admin.name, f"guess {number}")).status_code for number in range(11)]
    assert answers == [403] * 10 + [429]
    assert (await admin.sign_in()).status_code == 303
    answers = [(await admin.sign_in(password=f"guess {number}")).status_code for number in range(11)]
    assert answers == [403] * 10 + [429], "it may try as often as any other"


async def test_a_known_browser_is_known_for_its_user_and_password_alone(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    entered = await admin.sign_in()
    [cookie] = [one for one in entered.headers.get_list("set-cookie") if one.startswith("dealer_device_")]
    assert "httponly" in cookie.lower() and "path=/console/sign-in" in cookie.lower()
    async with signed_in(service) as other:
        for number in range(11):
            last = await visitor.sign_in(other.name, f"guess {number}")
        assert last.status_code == 429
        assert (await admin.sign_in(other.name, other.password)).status_code == 429
    for number in range(11):
        last = await visitor.sign_in(admin.name, f"guess {number}")
    assert last.status_code == 429 and (await admin.sign_in()).status_code == 303
    made = await accounts.reset(service.database, PASSWORDS, admin.user_id, None, "test")
    assert (await visitor.sign_in(admin.name, made.password)).status_code == 303, "a new password, a new count"
    async with browser(service) as third:
        for number in range(11):
            last = await third.sign_in(admin.name, f"guess {number}")
    assert last.status_code == 429
    assert (await admin.sign_in(password=made.password)).status_code == 429


async def test_unknown_names_are_throttled_like_known_ones(visitor: Browser) -> None:
    answers = [(await visitor.sign_in("nobody-here", "guess")).status_code for _ in range(11)]
    assert answers == [403] * 10 + [429]


async def test_many_guesses_at_once_are_no_more_than_one_by_one(admin: Browser, visitor: Browser) -> None:
    answers = await asyncio.gather(*(visitor.sign_in(admin.name, f"guess {number}") for number in range(25)))
    assert sorted(answer.status_code for answer in answers) == [403] * 10 + [429] * 15


async def test_an_address_may_try_fifty_names(service: Service, visitor: Browser) -> None:
    for number in range(48):
        with pytest.raises(NotSignedIn):
            here = Visitor("127.0.0.1", "")
            await sign_in.with_password(service.database, PASSWORDS, f"name-{number}", "", here, clock.now())
    answers = [(await visitor.sign_in(f"another-{number}", "")).status_code for number in range(3)]
    assert answers == [403] * 2 + [429]


async def test_a_good_sign_in_forgives_the_tries_before(admin: Browser, visitor: Browser) -> None:
    for _ in range(2):
        for number in range(9):
            assert (await visitor.sign_in(admin.name, f"guess {number}")).status_code == 403
        assert (await visitor.sign_in(admin.name, admin.password)).status_code == 303


async def test_a_sign_in_form_is_small(visitor: Browser) -> None:
    assert (await visitor.send("/console/sign-in", {"name": "a" * 100_000})).status_code == 413


# Staying


async def test_half_an_hour_of_silence_ends_a_session(service: Service, admin: Browser) -> None:
    await minutes_pass(service, admin, 29)
    assert is_inside(await admin.get("/console/account"))
    await minutes_pass(service, admin, 29)
    assert is_inside(await admin.get("/console/account")), "the visit before began the half hour anew"
    await minutes_pass(service, admin, 31)
    assert leads_to_sign_in(await admin.get("/console/account"))


async def test_a_page_that_renews_itself_keeps_nobody_inside(service: Service, admin: Browser) -> None:
    await minutes_pass(service, admin, 20)
    assert (await admin.get("/console/account", **{"HX-Request": "true"})).status_code == 200
    await minutes_pass(service, admin, 11)
    ended = await admin.get("/console/account", **{"HX-Request": "true"})
    assert (ended.status_code, ended.headers["hx-redirect"]) == (401, "/console/sign-in")


async def test_no_session_is_longer_than_twelve_hours(service: Service, admin: Browser) -> None:
    await change(
        service,
        "UPDATE console_session SET created_at = created_at - interval '12 hours' WHERE user_id = $1",
        admin.user_id,
    )
    assert leads_to_sign_in(await admin.get("/console/account"))


async def test_signing_out_ends_the_session_itself(admin: Browser, visitor: Browser) -> None:
    token = admin.token
    assert leads_to_sign_in(await admin.post("/console/sign-out"))
    visitor.http.cookies.set("dealer_console", token, domain="127.0.0.1", path="/console")
    assert leads_to_sign_in(await visitor.get("/console/account"))


async def test_signing_out_is_a_write(admin: Browser) -> None:
    assert (await admin.get("/console/sign-out")).status_code == 404
    assert (await admin.send("/console/sign-out")).status_code == 403
    assert is_inside(await admin.get("/console/account"))


async def test_who_is_disabled_is_out_at_once(service: Service, admin: Browser) -> None:
    async with signed_in(service, "support") as other:
        await accounts.change(service.database, other.user_id, None, "support", "DISABLED", "test")
        assert leads_to_sign_in(await other.get("/console/account"))


async def test_of_a_disabled_dealer_nobody_gets_in_or_stays(service: Service) -> None:
    ours = int((await service.tenant()).tenant_id)
    async with signed_in(service, "admin", ours) as one:
        await service.change(ours, status="DISABLED")
        assert leads_to_sign_in(await one.get("/console/account"))
        assert said(await one.sign_in()) == WRONG
        await service.change(ours, status="ACTIVE")
        assert (await one.sign_in()).status_code == 303


async def test_a_session_can_be_ended_from_another_and_only_by_its_owner(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    await visitor.sign_in(admin.name, admin.password)
    page = await admin.get("/console/account")
    [other] = re.findall(r"/console/account/sessions/(\d+)/end", page.text)
    async with signed_in(service) as stranger:
        assert (await stranger.post(f"/console/account/sessions/{other}/end")).status_code == 404
    assert (await admin.post(f"/console/account/sessions/{other}/end")).status_code == 303
    assert leads_to_sign_in(await visitor.get("/console/account"))
    assert is_inside(await admin.get("/console/account"))
    for number in ("0", "x", "9" * 30):
        assert (await admin.post(f"/console/account/sessions/{number}/end")).status_code == 404


async def test_all_other_sessions_end_at_once_and_it_is_on_record(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    assert "Sign out other sessions" not in (await admin.get("/console/account")).text, "there is one"
    await visitor.sign_in(admin.name, admin.password)
    assert "Sign out other sessions" in (await admin.get("/console/account")).text
    async with signed_in(service) as stranger:
        assert (await admin.post("/console/account/sessions/end")).status_code == 303
        assert is_inside(await stranger.get("/console/account"))
    assert said(await admin.get("/console/account")) == "1 other session ended."
    assert leads_to_sign_in(await visitor.get("/console/account"))
    assert await rows(
        service,
        "SELECT detail::jsonb -> 'sessions' FROM audit_log WHERE action = 'user.session.end' AND author = $1",
        f"console:{admin.name}",
    ) == [("1",)]


# Forms of others


async def test_a_write_without_the_token_is_refused(admin: Browser, service: Service) -> None:
    async with signed_in(service) as other:
        theirs = await other.csrf()
    for token in ("", "0" * 64, theirs):
        answer = await admin.send("/console/users", {"csrf": token, "name": "forged@example.com", "role": "admin"})
        assert answer.status_code == 403
    assert not await rows(service, "SELECT 1 FROM invitation WHERE address = 'forged@example.com'")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_form_that_another_site_sends_is_refused_even_to_sign_in(
    admin: Browser, visitor: Browser, headers: dict[str, str]
) -> None:
    token = await admin.csrf()
    assert (await admin.send("/console/sign-out", {"csrf": token}, **headers)).status_code == 403
    given = {"name": admin.name, "password": admin.password}
    assert (await visitor.send("/console/sign-in", given, **headers)).status_code == 403
    assert not visitor.token


async def test_our_own_origin_is_accepted(admin: Browser) -> None:
    headers = {"Origin": admin.url, "Sec-Fetch-Site": "same-origin"}
    assert (await admin.send("/console/sign-out", {"csrf": await admin.csrf()}, **headers)).status_code == 303


async def test_other_methods_are_refused(admin: Browser) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert (await admin.http.request(method, f"{admin.url}/console/account")).status_code == 403


async def test_what_is_no_form_is_refused_and_breaks_nothing(admin: Browser) -> None:
    kinds = [
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=x",
        "text/plain",
        "application/x-www-form-urlencoded",
    ]
    for kind in kinds:
        answer = await admin.http.post(
            f"{admin.url}/console/users", content=b'\xff--x\r\n\x00{"a":', headers={"Content-Type": kind}
        )
        assert answer.status_code in (403, 413), kind
    assert (await admin.post("/console/users", {"name": "x" * 2_000_000, "role": "admin"})).status_code in (400, 413)


# Headers


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/sign-in",
        "/console/account",
        "/console/none",
        "/console/static/console.css",
        "/console/static/none",
    ],
)
async def test_every_answer_forbids_what_pages_do_not_need(admin: Browser, path: str) -> None:
    headers = (await admin.get(path)).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    if not path.startswith("/console/static/console"):
        assert headers["cache-control"] == "no-store"


async def test_what_pages_link_to_is_there_and_kept_for_ever(visitor: Browser) -> None:
    page = (await visitor.get("/console/sign-in")).text
    linked = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page)
    assert len(linked) >= 7
    for path in linked:
        answer = await visitor.get(path)
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"], path
    assert (await visitor.get("/console/static/../door.py")).status_code in (303, 404)
    assert (await visitor.get("/console/static/%2e%2e/door.py")).status_code == 404


# One's own account


async def test_a_new_password_ends_the_other_sessions(admin: Browser, visitor: Browser) -> None:
    await visitor.sign_in(admin.name, admin.password)
    new = "correct horse battery"
    answer = await admin.post("/console/account/password", {"old": admin.password, "new": new, "again": new})
    assert answer.status_code == 303
    page = await admin.get("/console/account")
    assert said(page).startswith("The password is changed") and not said(await admin.get("/console/account"))
    assert leads_to_sign_in(await visitor.get("/console/account"))
    assert (await visitor.sign_in(admin.name, admin.password)).status_code == 403
    assert (await visitor.sign_in(admin.name, new)).status_code == 303


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        ({"old": "not it at all"}, "current password is wrong"),
        ({"again": "something else entirely"}, "not the same"),
        ({"new": "short", "again": "short"}, "12 to 200"),
        ({"new": "a" * 201, "again": "a" * 201}, "12 to 200"),
        ({"new": "aaaaaaaaaaaaaaa", "again": "aaaaaaaaaaaaaaa"}, "guessed"),
    ],
)
async def test_a_new_password_is_refused(admin: Browser, spoiled: dict[str, str], why: str) -> None:
    good = {"old": admin.password, "new": "correct horse battery", "again": "correct horse battery"}
    answer = await admin.post("/console/account/password", good | spoiled)
    assert answer.status_code == 400 and why in said(answer)


async def test_a_stolen_session_cannot_guess_the_password(admin: Browser) -> None:
    answers = []
    for number in range(11):
        fields = {"old": f"guess {number}", "new": "correct horse battery", "again": "correct horse battery"}
        answers.append(said(await admin.post("/console/account/password", fields)))
    assert "Too many attempts" in answers[-1] and "Too many" not in answers[-2]


# Two-factor authentication


async def with_codes(one: Browser) -> bytes:
    """Switches them on; gives the secret. The code of this step is used up."""
    page = await one.get("/console/account/totp")
    found = re.search(r"<code>([A-Z2-7 ]{39})</code>", page.text)
    assert page.status_code == 200 and found
    secret = base64.b32decode(found[1].replace(" ", ""))
    code = totp.code(secret, totp.step_of(clock.now()))
    assert (await one.post("/console/account/totp", {"code": code})).headers["location"] == "/console/account"
    return secret


def next_code(secret: bytes) -> str:
    """That of the step to come: the one of now may be used up, the one before may be over when it arrives."""
    return totp.code(secret, totp.step_of(clock.now()) + 1)


async def test_with_codes_on_a_password_alone_opens_nothing(admin: Browser, visitor: Browser) -> None:
    secret = await with_codes(admin)
    answer = await visitor.sign_in(admin.name, admin.password)
    assert answer.headers["location"].startswith("/console/sign-in/code")
    assert leads_to_sign_in(await visitor.get("/console/account"))
    before = visitor.token
    page = await visitor.get("/console/sign-in/code")
    csrf = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert csrf
    code = next_code(secret)
    assert (await visitor.send("/console/sign-in/code", {"code": code})).status_code == 403
    assert (await visitor.send("/console/sign-in/code", {"csrf": csrf[1], "code": "000000"})).status_code == 403
    assert (await visitor.send("/console/sign-in/code", {"csrf": csrf[1], "code": code})).status_code == 303
    assert is_inside(await visitor.get("/console/account")) and visitor.token != before


async def test_a_code_works_once(service: Service, admin: Browser, visitor: Browser) -> None:
    secret = await with_codes(admin)
    code = next_code(secret)
    await visitor.sign_in(admin.name, admin.password)
    assert (await code_given(visitor, code)).status_code == 303
    async with browser(service) as other:
        await other.sign_in(admin.name, admin.password)
        assert (await code_given(other, code)).status_code == 403


async def test_codes_can_be_tried_ten_times_however_often_the_password_was_given(
    admin: Browser, visitor: Browser
) -> None:
    await with_codes(admin)
    answers = []
    for _ in range(11):
        await visitor.sign_in(admin.name, admin.password)
        answers.append((await code_given(visitor, "no code")).status_code)
    assert answers == [403] * 10 + [429]


async def code_given(one: Browser, code: str) -> httpx2.Response:
    csrf = re.search(r'name="csrf" value="(\w+)"', (await one.get("/console/sign-in/code")).text)
    assert csrf
    return await one.send("/console/sign-in/code", {"csrf": csrf[1], "code": code})


async def test_codes_are_switched_off_only_by_who_is_sure(service: Service, admin: Browser) -> None:
    await with_codes(admin)
    await minutes_pass(service, admin, 6)
    asked = await admin.post("/console/account/totp/off")
    assert "Enter your password to continue" in asked.text
    assert await rows(service, "SELECT totp_on FROM console_user WHERE user_id = $1", admin.user_id) == [(True,)]
    wrong = await admin.post("/console/account/totp/off", {"sure_for": "POST", "sure_password": "guess"})
    assert "password is wrong" in said(wrong)
    done = await admin.post("/console/account/totp/off", {"sure_for": "POST", "sure_password": admin.password})
    assert done.status_code == 303
    assert await rows(service, "SELECT totp_on, sealed_totp FROM console_user WHERE user_id = $1", admin.user_id) == [
        (False, None)
    ]


async def test_a_page_that_needs_certainty_is_shown_after_the_password(service: Service, admin: Browser) -> None:
    await minutes_pass(service, admin, 6)
    asked = await admin.get("/console/account/totp")
    assert "Enter your password to continue" in asked.text and 'value="GET"' in asked.text
    given = await admin.post("/console/account/totp", {"sure_for": "GET", "sure_password": admin.password})
    assert (given.status_code, given.headers["location"]) == (303, "/console/account/totp")
    assert "authenticator app" in (await admin.get("/console/account/totp")).text


async def test_where_codes_are_required_their_page_alone_opens_until_they_are_set_up(
    service: Service, dealer: ApiClient
) -> None:
    async with (
        running_service(service.settings.database_url, worker=False, two_factor="operators") as strict,
        signed_in(strict) as operator,
        signed_in(strict, tenant_id=dealer.tenant_id) as clerk,
    ):
        assert (await clerk.get("/console/orders")).status_code == 200, "of dealers it is not asked"
        for path in ("/console/orders", "/console/account", "/console/orders.csv"):
            asked = await operator.get(path)
            assert (asked.status_code, asked.headers["location"]) == (303, "/console/account/totp"), path
        page = await operator.get("/console/account/totp")
        assert "It is required here" in page.text and ">Cancel<" not in page.text
        found = re.search(r"<code>([A-Z2-7 ]{39})</code>", page.text)
        csrf = re.search(r'name="csrf" value="(\w+)"', page.text)
        assert found and csrf
        code = totp.code(base64.b32decode(found[1].replace(" ", "")), totp.step_of(clock.now()))
        form = {"csrf": csrf[1], "once": "f" * 32, "code": code}
        assert (await operator.send("/console/users", form)).headers["location"] == "/console/account/totp"
        assert (await operator.send("/console/account/totp", form)).headers["location"] == "/console"
        assert "Turn off" not in (await operator.get("/console/account")).text
        await operator.post("/console/account/totp/off")
        assert "is required here" in said(await operator.get("/console/account"))
        assert (await operator.get("/console/orders")).status_code == 200


async def test_codes_are_those_of_rfc_6238() -> None:
    secret = b"12345678901234567890"
    for seconds, code in ((59, "287082"), (1111111109, "081804"), (2000000000, "279037"), (20000000000, "353130")):
        assert totp.code(secret, seconds // 30) == code


# Users


async def test_a_user_whom_an_admin_resets_can_sign_in(service: Service, admin: Browser, visitor: Browser) -> None:
    user_id, name = await somebody(service)
    led = await admin.post(f"/console/users/{user_id}/reset")
    assert (led.status_code, led.headers["location"], led.text) == (303, "/console/users", "")
    password = made_password(await admin.get("/console/users"))
    assert password not in (await admin.get("/console/users")).text, "shown once"
    assert (await visitor.sign_in(name, password)).status_code == 303


async def somebody(service: Service) -> tuple[int, str]:
    name = f"some-{secrets.token_hex(4)}"
    return (
        await accounts.create(service.database, PASSWORDS, None, name, "support", "test", "a good one")
    ).user_id, name


def made_password(page: httpx2.Response) -> str:
    found = re.search(r"<code>([A-Za-z0-9]{20})</code>", page.text)
    assert found, "no password is shown"
    return found[1]


async def test_a_made_password_is_kept_sealed_for_its_maker_and_for_ten_minutes(
    service: Service, admin: Browser
) -> None:
    user_id, name = await somebody(service)
    await admin.post(f"/console/users/{user_id}/reset")
    async with signed_in(service) as other:
        assert f"The password of {name}" not in (await other.get("/console/users")).text
    [(sealed,)] = await rows(
        service, "SELECT sealed_made FROM console_session WHERE user_id = $1 AND sealed_made IS NOT NULL", admin.user_id
    )
    password = made_password(await admin.get("/console/users"))
    assert isinstance(sealed, bytes) and password.encode() not in sealed
    await admin.post(f"/console/users/{user_id}/reset")
    await change(service, "UPDATE console_session SET made_until = made_until - interval '10 minutes'")
    assert f"The password of {name}" not in (await admin.get("/console/users")).text
    await admin.sign_in()
    assert not await rows(service, "SELECT 1 FROM console_session WHERE sealed_made IS NOT NULL"), "swept"


async def test_a_made_password_opens_the_page_that_changes_it_and_no_other(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    made = await accounts.create(service.database, PASSWORDS, None, f"m-{secrets.token_hex(4)}", "admin", "test")
    assert (await visitor.sign_in(made.name, made.password)).status_code == 303
    choose = "/console/account/password"
    page = await visitor.get(choose)
    assert page.status_code == 200 and "Choose your password" in page.text
    csrf = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert csrf
    for path in ("/console", "/console/account", "/console/users", "/console/nothing"):
        assert (await visitor.get(path)).headers["location"] == choose
    form = {"csrf": csrf[1], "once": secrets.token_hex(16), "name": "sneaky@example.com", "role": "admin"}
    assert (await visitor.send("/console/users", form)).headers["location"] == choose
    part = await visitor.get("/console", **{"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (401, choose)
    same = {"old": made.password, "new": made.password, "again": made.password}
    refused = await visitor.send(choose, form | same)
    assert (
        refused.status_code == 400
        and "the one you have now" in said(refused)
        and "Choose your password" in refused.text
    )
    new = {"old": made.password, "new": "correct horse battery", "again": "correct horse battery"}
    assert (await visitor.send(choose, form | new)).headers["location"] == "/console"
    assert is_inside(await visitor.get("/console/account"))
    assert not await rows(service, "SELECT 1 FROM invitation WHERE address = 'sneaky@example.com'")


async def test_who_must_change_the_password_can_leave(service: Service, visitor: Browser) -> None:
    made = await accounts.create(service.database, PASSWORDS, None, f"l-{secrets.token_hex(4)}", "support", "test")
    await visitor.sign_in(made.name, made.password)
    csrf = re.search(r'name="csrf" value="(\w+)"', (await visitor.get("/console/account/password")).text)
    assert csrf and leads_to_sign_in(await visitor.send("/console/sign-out", {"csrf": csrf[1]}))


async def test_a_dealers_admin_makes_and_sees_the_dealers_own_alone(service: Service) -> None:
    ours, theirs = [int((await service.tenant()).tenant_id) for _ in range(2)]
    async with signed_in(service, "admin", ours) as one, signed_in(service, "admin", theirs) as other:
        name = f"ours-{secrets.token_hex(4)}@example.com"
        assert (
            await one.post("/console/users", {"name": name, "role": "finance", "tenant": str(theirs)})
        ).status_code == 303
        assert await rows(service, "SELECT tenant_id FROM invitation WHERE address = $1", name) == [(ours,)]
        assert name in (await one.get("/console/users")).text and name not in (await other.get("/console/users")).text
        for path in (f"/console/users/{other.user_id}", f"/console/users/{other.user_id}/reset"):
            answer = await one.post(path, {"role": "finance", "status": "DISABLED"})
            assert answer.status_code == 303
            assert said(await one.get("/console/users")) == "there is no such user"
        assert is_inside(await other.get("/console/account"))
        assert "support" in said(await one.refused("/console/users", {"name": "x@example.com", "role": "support"}))


async def test_the_last_admin_stays(service: Service) -> None:
    ours = int((await service.tenant()).tenant_id)
    async with signed_in(service, "admin", ours) as one, signed_in(service, "admin", ours) as two:
        changes = [
            accounts.change(service.database, who.user_id, ours, "finance", "ACTIVE", "test") for who in (one, two)
        ]
        ends = await asyncio.gather(*changes, return_exceptions=True)
        assert sorted(type(end) for end in ends if end) == [OperatorError]


async def test_a_reset_lets_in_whoever_has_lost_password_and_phone(
    service: Service, admin: Browser, visitor: Browser
) -> None:
    async with signed_in(service, "support") as other:
        await with_codes(other)
        await admin.post(f"/console/users/{other.user_id}/reset")
        password = made_password(await admin.get("/console/users"))
        assert leads_to_sign_in(await other.get("/console/account"))
        assert (await visitor.sign_in(other.name, password)).headers["location"] == "/console"
        assert (await visitor.get("/console")).headers["location"] == "/console/account/password"


@pytest.mark.parametrize("name", ["", "two words", "tab\there", "x" * 101])
async def test_such_names_are_refused(admin: Browser, name: str) -> None:
    assert said(await admin.refused("/console/users", {"name": name, "role": "admin"}))


async def test_a_name_is_taken_whatever_its_case(service: Service, admin: Browser) -> None:
    name = f"case-{secrets.token_hex(4)}@example.com"
    await accounts.create(service.database, PASSWORDS, None, name, "support", "test", "a good password")
    assert "already" in said(await admin.refused("/console/users", {"name": name.upper(), "role": "admin"}))


PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img/src=x/onerror=alert(1)>',
    "'onmouseover='alert(1)",
    "{{7*7}}",
    "</title><svg/onload=alert(1)>",
]


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_what_is_in_a_name_stays_text(service: Service, payload: str) -> None:
    name = payload.replace(" ", "/") + secrets.token_hex(2)
    created = await service.tenant(name=payload)
    async with signed_in(service, "admin", name=name) as one:
        await one.post("/console/users", {"name": payload + "x", "role": "admin", "tenant": created.tenant_id})
        for path in ("/console/users", "/console/account", "/console/nothing", f"/console/search?q={payload}"):
            page = await one.get(path)
            assert payload == "{{7*7}}" or payload not in page.text, path
            assert "49" + name[7:] not in page.text, path
        assert payload == "{{7*7}}" or payload not in (await one.sign_in(payload, "x")).text


async def test_who_did_what_is_in_the_audit_log(service: Service, admin: Browser) -> None:
    name = f"acts-{secrets.token_hex(4)}@example.com"
    await admin.post("/console/users", {"name": name, "role": "support", "tenant": ""})
    sql = "SELECT author, source, action, detail::text FROM audit_log WHERE detail::text LIKE $1"
    [(author, source, action, detail)] = await rows(service, sql, f"%{name}%")
    assert (author, source, action) == (f"console:{admin.name}", "127.0.0.1", "user.invite")
    assert "password" not in str(detail)


# Roles


def opened(path: str) -> str:
    """A path with something in place of its braces: 1 is nobody's."""
    return re.sub(r"\{[^}]*\}", "1", path)


@pytest.mark.parametrize(("kind", "role"), ROLES)
async def test_every_page_opens_for_its_roles_and_for_no_other(service: Service, kind: str, role: str) -> None:
    """Declared roles get in (a page, a lead elsewhere, or that there is no such thing); others 403 or 404, always."""
    tenant_id = None if kind == "op" else int((await service.tenant()).tenant_id)
    me = f"{kind}:{role}"
    async with signed_in(service, role, tenant_id) as one:
        csrf = await one.csrf()
        pages = {(page.method, page.path) for page in PAGES}
        for method, path in sorted(pages):
            if method == "POST" and path.startswith("/console/account"):
                continue  # would change who is asking; for everybody
            here = opened(path)
            ours = [page for page in PAGES if page.method == method and page.pattern.match(here) and kind in page.kinds]
            allowed = bool(ours) and me in ours[0].roles
            if allowed and method == "POST":
                continue  # whether the write itself is right is not asked here
            answer = await (one.get(here) if method == "GET" else one.send(here, {"csrf": csrf}))
            expected = (200, 303, 404) if allowed else (403,) if ours else (404,)
            assert answer.status_code in expected, f"{me} {method} {path} {answer.status_code}"


FOR_BOTH = ("/console/account", "/console/users", "/console/notices", "/console/search", "/console/views",
            "/console/refunds/{number}")  # fmt: skip


async def test_only_pages_of_ones_own_and_the_search_are_for_both_kinds_of_people() -> None:
    """Each of them shows a dealer the dealer's own; all others are written for one kind."""
    for page in PAGES:
        assert len(page.kinds) == 1 or page.path.startswith(FOR_BOTH), page.path


async def test_a_write_that_is_not_allowed_is_not_made(service: Service) -> None:
    async with signed_in(service, "support") as one:
        before = await rows(service, "SELECT count(*) FROM console_user")
        assert (await one.post("/console/users", {"name": "sneaky@example.com", "role": "admin"})).status_code == 403
        assert await rows(service, "SELECT count(*) FROM console_user") == before


# Where the console is


async def test_it_can_be_switched_off(database_url: str) -> None:
    async with running_service(database_url, worker=False, console="") as service, browser(service) as one:
        answer = await one.get("/console/sign-in")
        assert answer.status_code == 404 and answer.json()["code"]


async def test_it_can_have_a_port_of_its_own(database_url: str, unused_port: int) -> None:
    address = f"127.0.0.1:{unused_port}"
    async with running_service(database_url, worker=False, console=address) as service, browser(service) as one:
        assert (await one.get("/console/sign-in")).status_code == 404
        assert (await one.get("/", Accept="text/html")).status_code == 404
        one.url = f"http://{address}"
        assert (await one.get("/console/sign-in")).status_code == 200
        assert (await one.get("/")).headers["location"] == "/console"
        name = f"p-{secrets.token_hex(4)}"
        made = await accounts.create(service.database, PASSWORDS, None, name, "admin", "test", "a good password")
        answer = await one.sign_in(made.name, made.password, next="/console/account")
        assert answer.status_code == 303 and is_inside(await one.get("/console/account"))


async def test_a_browser_that_comes_to_the_address_alone_is_led_to_the_console(visitor: Browser) -> None:
    answer = await visitor.get("/", Accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


async def test_a_slash_at_the_end_of_an_address_leads_to_its_page(service: Service, visitor: Browser):
    for path, page in (("/console/", "/console"), ("/console/orders/?status=FAILED", "/console/orders?status=FAILED")):
        answer = await visitor.get(path)
        assert (answer.status_code, answer.headers["location"]) == (308, page)
    assert (await visitor.get("/console//example.com//")).headers["location"] == "/console//example.com"


@pytest.mark.parametrize(("path", "accept"), [("/", "*/*"), ("/", "application/json"), ("/x", "text/html")])
async def test_any_other_unknown_path_stays_unknown(visitor: Browser, path: str, accept: str) -> None:
    answer = await visitor.get(path, Accept=accept)
    assert (answer.status_code, answer.json()["code"]) == (404, "000112")


async def test_what_is_posted_to_the_address_alone_stays_unknown(visitor: Browser) -> None:
    answer = await visitor.send("/", {}, Accept="text/html")
    assert (answer.status_code, answer.json()["code"]) == (404, "000112")


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# The command


async def test_the_command_makes_lists_and_resets_users(service: Service, visitor: Browser) -> None:
    env = environment(service.settings.database_url)
    made = json.loads((await run("user", "create", "cli@example.com", "--role", "finance", "--json", env=env)).out)
    assert (await visitor.sign_in("cli@example.com", made["password"])).status_code == 303
    again = json.loads((await run("user", "reset", "CLI@example.com", "--json", env=env)).out)
    assert made["mustChange"] and again["mustChange"]
    assert leads_to_sign_in(await visitor.get("/console/account")) and again["password"] != made["password"]
    assert (await visitor.sign_in("cli@example.com", again["password"])).status_code == 303
    listed = [json.loads(line) for line in (await run("user", "list", "--json", env=env)).out.splitlines()]
    [one] = [one for one in listed if one["name"] == "cli@example.com"]
    assert (one["role"], one["status"], one["tenantId"]) == ("finance", "ACTIVE", None)
    assert "password" not in one


async def test_the_command_says_that_the_password_must_be_changed(service: Service) -> None:
    env = environment(service.settings.database_url)
    for arguments in (("create", "told@example.com"), ("reset", "told@example.com")):
        assert "must be changed at the first sign-in" in (await run("user", *arguments, env=env)).out


async def test_the_command_refuses_in_one_line(service: Service) -> None:
    env = environment(service.settings.database_url)
    for arguments, line in (
        (("create", "x", "--role", "king"), "role is 'king'; accepted: admin, finance, support, readonly"),
        (("create", "x", "--role", "developer", "--tenant", "99999"), "no tenant 99999"),
        (("create", "two words"), "a name has 1 to 100 characters and no spaces, such as an email address"),
        (("reset", "nobody-here"), "no user nobody-here"),
    ):
        done = await run("user", *arguments, env=env)
        assert (done.status, done.err) == (1, f"dealer-server: {line}")


# Connections


async def test_a_connection_with_a_session_outlasts_one_without(database_url: str):
    settings = {"worker": False, "stranger_idle_seconds": 0.2, "idle_seconds": 60.0}
    async with running_service(database_url, **settings) as service, signed_in(service) as somebody:
        cookie = [("Cookie", f"dealer_console={somebody.token}")]
        async with asyncio.timeout(PATIENCE):
            reader, writer = await raw_http.connect(service.url)
            nobody, other = await raw_http.connect(service.url)
            writer.write(raw_http.request("/console/account", cookie, method="GET"))
            assert (await raw_http.read(reader)).status == 200
            other.write(raw_http.request("/console/sign-in", [], method="GET"))
            assert (await raw_http.read(nobody)).status == 200
            assert await nobody.read() == b""
            writer.write(raw_http.request("/console/account", cookie, method="GET"))
            assert (await raw_http.read(reader)).status == 200
        for transport in (writer.transport, other.transport):
            transport.abort()
