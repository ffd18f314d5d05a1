"""Every page of the console with something behind it: who opens it, where, and the small world it is looked at in.

Every declared page stands in PAGES; test_console_looks.py says which one is missing.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from email import message_from_bytes
from typing import Any, NamedTuple

from dealer_server import clock
from dealer_server.db.connection import Connection
from dealer_server.operations.tenants.create import Created
from dealer_server.operations.users import accounts, invitations
from dealer_server.rules.notices import supplier_down
from dealer_server.store.notices import outbox
from support.api_client import ApiClient, Service, running_service
from support.browser import PASSWORDS, Browser, browser
from support.console.onboarding import up_to
from support.console.operator_pages import park
from support.patience import PATIENCE
from support.reports import folded
from support.store_fixture import stock_csv
from support.supplier_setup import Source, set_up
from support.webhook_fixture import Receiver, answer, listening

FAIR = {"name": "Meridian Travel SIM", "balance": "1500", "credit_limit": "250", "low_balance": "200", "qps": 0}
WORD = "a word for the test"
LONG = "Société Générale des Voyages et du Tourisme International du Grand Est"
NEAR = Source("rt:near", "rt_upstream", {"baseUrl": "http://127.0.0.1:9", "accessCode": "ours", "secretKey": "hush"})
PROFILE = {"number": "{profile_id}"}  # operators' pages of profiles name it so
PEOPLE = {  # who: operator's or dealer's, role
    "operator": ("op", "admin"),
    "reader": ("op", "readonly"),
    "forgetful": ("op", "admin"),
    "dealer": ("dealer", "admin"),
    "clerk": ("dealer", "finance"),
    "newcomer": ("dealer", "admin"),
    "invited": ("dealer", "developer"),
    "nobody": ("", ""),
}


class Seen(NamedTuple):
    """One page as one person sees it. `path` as it stands in the table; `things` stand in its braces instead of what
    usually does, and may be made of that. `pictured`: it looks the same in every run."""

    who: str
    path: str
    query: str = ""
    things: Mapping[str, str] = {}
    status: int = 200
    pictured: bool = True

    @property
    def name(self) -> str:
        words = f"{self.path.removeprefix('/console')}-{self.query}".translate(
            str.maketrans("/?&=+.:", "-------", "{}")
        )
        return "-".join(word for word in (self.who, *words.split("-")) if word) if words != "-" else self.who


def _of(who: str, *paths: str) -> list[Seen]:
    return [Seen(who, path) for path in paths]


PAGES: tuple[Seen, ...] = (
    *_of("operator", "/console", "/console/account", "/console/account/totp", "/console/users", "/console/audit"),
    *_of("operator", "/console/account/password"),
    *_of("operator", "/console/dealers", "/console/dealers/new", "/console/dealers/{tenant_id}"),
    *_of("operator", "/console/dealers/new/{draft_id}/prices", "/console/dealers/new/{draft_id}/user"),
    *_of("operator", "/console/dealers/new/{draft_id}/review", "/console/dealers/{tenant_id}/created"),
    *_of("operator", "/console/dealers/{tenant_id}/statement", "/console/dealers/{tenant_id}/credentials/{app_key}"),
    *_of(
        "operator",
        "/console/dealers/{tenant_id}/brand",
        "/console/dealers/{tenant_id}/api-log/{number}",
    ),
    *_of("operator", "/console/orders", "/console/orders/{order_no}", "/console/topups", "/console/refunds"),
    *_of("operator", "/console/packages", "/console/packages/import", "/console/suppliers", "/console/webhooks"),
    *_of(
        "operator",
        "/console/webhooks/endpoints",
        "/console/webhooks/endpoints/{tenant_id}",
        "/console/webhooks/resend",
        "/console/deliveries/{tenant_id}/{delivery_id}",
    ),
    *_of("operator", "/console/profiles", "/console/regions", "/console/waiting"),
    Seen("operator", "/console/orders/{recharge_no}", pictured=False),  # its timeline is not the same each time
    Seen("operator", "/console", "range=30d"),
    Seen("operator", "/console/waiting", "supplier=nobody"),
    *_of("operator", "/console/notices", "/console/notices/settings", "/console/mails", "/console/mails/{mail_id}"),
    *_of("operator", "/console/reports", "/console/dealers/{tenant_id}/statements"),
    Seen("operator", "/console/reports", "by=dealer&then=package"),
    Seen("operator", "/console/reports", "dealer=1"),
    Seen("operator", "/console/dealers/{tenant_id}/statements/{month}"),
    Seen("operator", "/console/dealers/{tenant_id}/api-log", pictured=False),  # it counts calls
    Seen("operator", "/console/dealers/{tenant_id}/api-log", "path=none", pictured=False),
    Seen("operator", "/console/dealers/{tenant_id}/api-log/succeeded/1", pictured=False),  # it says how long it took
    Seen("operator", "/console/profiles/{number}", things=PROFILE),
    Seen("operator", "/console/profiles/{number}/code", things=PROFILE),
    Seen("operator", "/console/profiles/{number}/sms", things=PROFILE),
    Seen("operator", "/console/packages/{code}/stock", things={"code": "DEMO-STOCK"}),
    Seen("operator", "/console/packages/{code}", things={"code": "TEST-OK"}),
    Seen("operator", "/console/packages/{code}/edit", things={"code": "TEST-OK"}),
    *_of("operator", "/console/packages/new", "/console/price-lists", "/console/price-lists/new"),
    Seen("operator", "/console/price-lists/{price_list_id}", things={"price_list_id": "1"}),
    Seen("operator", "/console/price-lists/{price_list_id}/import", things={"price_list_id": "1"}),
    Seen("operator", "/console/suppliers/{code}", "totals=1", {"code": "rt:near"}),
    *_of("operator", "/console/suppliers/new"),
    Seen("operator", "/console/suppliers/new", "kind=es2plus"),
    Seen("operator", "/console/suppliers/{code}/settings", things={"code": "rt:near"}),
    Seen("operator", "/console/packages/{code}/route", things={"code": "TEST-OK"}),
    Seen("operator", "/console/search", "q=Meridian"),
    Seen("operator", "/console/search", "q=nothing-is-called-so"),
    Seen("operator", "/console/search", "q=shop"),
    Seen("operator", "/console/lookup/dealers", "q=mer"),
    Seen("operator", "/console/lookup/packages", "q=test"),
    Seen("clerk", "/console/lookup/packages", "q=test"),
    Seen("operator", "/console/lookup/places", "q=fran"),
    Seen("operator", "/console/orders", "status=FAILED"),
    Seen("dealer", "/console/search", "q=shop"),
    Seen("operator", "/console/orders", "dealer=1"),
    Seen("operator", "/console/refunds", "status=REJECTED"),
    Seen("operator", "/console/topups", "status=REJECTED"),
    Seen("operator", "/console/topups/{number}", things={"number": "{topup_no}"}),
    Seen("operator", "/console/audit", "action=none.such"),
    Seen("operator", "/console/nowhere", status=404),
    Seen("forgetful", "/console/dealers/{tenant_id}/credentials/{app_key}"),
    *_of("reader", "/console", "/console/topups", "/console/dealers/{tenant_id}", "/console/orders/{order_no}"),
    *_of("dealer", "/console", "/console/orders", "/console/orders/{order_no}", "/console/orders/{order_no}/print"),
    *_of("dealer", "/console/profiles", "/console/profiles/{profile_id}", "/console/wallet", "/console/wallet/topups"),
    *_of("dealer", "/console/refunds"),
    Seen("dealer", "/console/orders/{recharge_no}", pictured=False),
    *_of("dealer", "/console/webhooks", "/console/webhooks/{delivery_id}", "/console/credentials"),
    *_of("dealer", "/console/credentials/{app_key}/secret", "/console/api-log/{number}"),
    Seen("dealer", "/console/api-log", pictured=False),  # it counts calls
    *_of("dealer", "/console/account", "/console/account/totp", "/console/users", "/console/brand", "/console/notices"),
    *_of("dealer", "/console/notices/settings", "/console/notices/{notice_id}"),
    *_of("dealer", "/console/catalogue", "/console/catalogue/{package_code}", "/console/bulk"),
    Seen("dealer", "/console/catalogue", "q=nothing-is-called-so"),
    Seen("dealer", "/console/buy", "package=TEST-OK&quantity=3&seen=1.50&transaction_id=console-0123456789abcdef"),
    *_of("dealer", "/console/bulk/{bulk_id}"),
    Seen("dealer", "/console/orders", "q=nothing-is-called-so"),
    *_of("dealer", "/console/reports", "/console/wallet/statements", "/console/wallet/statements/{month}"),
    *_of("clerk", "/console", "/console/orders/{order_no}", "/console/profiles/{profile_id}", "/console/wallet"),
    Seen("clerk", "/console/credentials", status=403),
    *_of("newcomer", "/console", "/console/orders", "/console/profiles", "/console/wallet", "/console/wallet/topups"),
    *_of("newcomer", "/console/reports", "/console/wallet/statements"),
    Seen("dealer", "/console/api-log/succeeded/1", pictured=False),
    Seen("newcomer", "/console/api-log", "result=refused"),
    *_of("newcomer", "/console/webhooks", "/console/api-log", "/console/credentials", "/console/brand"),
    *_of("invited", "/console/account/password"),
    *_of("nobody", "/console/sign-in"),
    Seen("nobody", "/console/invitation/{token}"),
    Seen("nobody", "/console/invitation/nobody-knows-it", status=404),
    Seen("nobody", "/console/confirm-address/nobody-knows-it", status=410),
    *_of("nobody", "/console/password-reset"),
    Seen("nobody", "/console/password-reset/nobody-knows-it", status=410),
)


class World(NamedTuple):
    """A service with everything in it that pages show. `tokens` and `things` by who."""

    service: Service
    tokens: Mapping[str, str]
    things: Mapping[str, Mapping[str, str]]

    def address(self, page: Seen) -> str:
        known = self.things.get(page.who, {})
        path = page.path.format(**{**known} | {name: text.format(**known) for name, text in page.things.items()})
        return f"{self.service.url}{path}{'?' if page.query else ''}{page.query}"


@asynccontextmanager
async def world(database_url: str) -> AsyncIterator[World]:
    """It tries a webhook twice and gives up; its one supplier over a network is away."""
    await set_up(database_url, [NEAR], {})
    async with (
        running_service(database_url, webhook_schedule="0,0.05", mailbox=True, stock_low=0, queue_hours=0) as service,
        listening(1) as [receiver],
        AsyncExitStack() as stack,
    ):
        mine, new = await service.tenant(**FAIR), await service.tenant("JPY", name="Nippon Connect", qps=10)
        await service.tenant("EUR", name=LONG, balance="1234567.89", qps=50)
        tenants = {"dealer": mine, "clerk": mine, "invited": mine, "newcomer": new}
        people: dict[str, Browser] = {}
        for who, (kind, role) in PEOPLE.items():
            if kind:
                people[who] = await stack.enter_async_context(browser(service))
                tenant_id = int(tenants[who].tenant_id) if kind == "dealer" else None
                await _signed_in(service, people[who], who, role, tenant_id)
        async with service.client(mine) as client:
            things = await _life(service, client, receiver, people)
        await _all_counted(service, people["operator"])
        await folded(service.database)
        things["mail_id"] = await _told(service)
        token = await _invited(service, people["operator"], mine)
        things["draft_id"] = await _drafted(people["operator"])
        await _unsure(service, people["forgetful"])
        names = dict.fromkeys(("operator", "reader", "forgetful", "dealer", "clerk"), things)
        theirs = {"newcomer": _credentials(new), "nobody": {"token": token}}
        yield World(service, {who: one.token for who, one in people.items()}, names | theirs)


async def _invited(service: Service, operator: Browser, dealer: Created) -> str:
    """Somebody invited to a dealer that manages its AppKeys and its allowlist; what the link holds."""
    tenant_id = int(dealer.tenant_id)
    await service.change(tenant_id, manages_keys=True, edits_ip_allow=True)
    address, now = "new.colleague@example.com", service.database.clock.now()
    await invitations.invite(service.database, tenant_id, "finance.person@example.com", "finance", "test", now)
    return (await invitations.invite(service.database, tenant_id, address, "developer", "test", now)).token


async def _drafted(operator: Browser) -> str:
    """A dealer that is not finished; its draftId."""
    fields = {"name": "Alpine Roaming", "balance": "500", "markup": "12.5", "address": "lena@alpine.example"}
    place = await up_to(operator, "review", **fields, prices="TEST-OK 1.80\nTEST-DELAY off")
    return place.split("/")[-2]


async def _signed_in(service: Service, inside: Browser, who: str, role: str, tenant_id: int | None) -> None:
    made = await accounts.create(
        service.database, PASSWORDS, tenant_id, f"{who}@example.com", role, "test", None if who == "invited" else WORD
    )
    inside.user_id, inside.name, inside.password = made.user_id, made.name, made.password
    assert (await inside.sign_in()).status_code == 303


async def _life(
    service: Service, client: ApiClient, receiver: Receiver, people: Mapping[str, Browser]
) -> dict[str, str]:
    """What happens to a dealer, one thing after the other, so that lists are the same each time; what came of it."""
    await _operator_acts(people["operator"], client)
    await client.post("/webhook/set", {"callbackUrl": receiver.url})
    order = await _bought(client, ("TEST-OK", 3), ("TEST-ASYNC", 1), remark="For the fair in Lyon, stand 12")
    await receiver.received(2)
    await _refunds(client)
    profile = order["items"][0]["profiles"][0]
    recharge_no = await _recharged(client, profile["iccid"], "TEST-TOPUP-OK", "COMPLETED")
    used = {"iccid": profile["iccid"], "step": "USE", "dataUsageBytes": 2**30 + 2**28}
    await client.post("/test/profile/advance", used)
    sms = {
        "transactionId": "sms-2026-0001",
        "iccid": profile["iccid"],
        "message": "Welcome to Lyon. Switch roaming on.",
    }
    await client.post("/esim/profile/sms", sms)
    await park(service, client)
    await park(service, client, await _recharged(client, profile["iccid"], "TEST-TOPUP-FAIL", "REFUNDED"))
    topup_no = await _topups(client, people["operator"])
    await _refused(client)
    receiver.answers = [answer(500, body=b'{"error": "the database of the fixture is away"}')]
    last = await _bought(client, ("TEST-OK", 1))
    delivery_id = await _given_up(service, last["orderNo"], client)
    return {
        "tenant_id": str(client.tenant_id),
        "app_key": client.app_key,
        "order_no": order["orderNo"],
        "recharge_no": recharge_no,
        "topup_no": topup_no,
        "profile_id": profile["profileId"],
        "delivery_id": delivery_id,
        "number": await _number(people["dealer"]),
        "notice_id": await _notice_id(people["dealer"]),
        "month": f"{clock.now():%Y-%m}",
        "package_code": "TEST-OK",
        "bulk_id": await _looked_at(people["dealer"]),
    }


async def _operator_acts(operator: Browser, client: ApiClient) -> None:
    home = f"/console/dealers/{client.tenant_id}"
    await operator.post(f"{home}/prices", {"package": "TEST-PARTIAL", "price": "1.65"})
    await operator.post(f"{home}/prices", {"package": "TEST-STOCKOUT", "price": "off"})
    await operator.post("/console/price-lists", {"name": "Resellers", "basis": "PRICE", "markup": "-7.5"})
    await operator.post("/console/price-lists/1/exceptions", {"package": "TEST-ASYNC", "price": "1.95"})
    await operator.post(f"{home}/adjust", {"direction": "take", "amount": "12.50", "reason": "paid twice"})
    await operator.post("/console/packages/DEMO-STOCK/stock", files={"file": stock_csv(3).encode()})
    await operator.post("/console/packages/status", {"package": "TEST-DELAY", "status": "OFF_SALE"})


async def _bought(client: ApiClient, *lines: tuple[str, int], **call: Any) -> dict[str, Any]:
    items = [{"packageCode": package, "quantity": quantity, "price": "1.80"} for package, quantity in lines]
    amount = f"{sum(quantity for _, quantity in lines) * 1.8:.2f}"
    placed = await client.order(items=items, amount=amount, transactionId=f"shop-2026-{secrets.token_hex(4)}", **call)
    return await client.delivered(placed.data["orderNo"])


async def _recharged(client: ApiClient, iccid: str, package: str, status: str) -> str:
    """The orderNo of a recharge that has come to this."""
    call = {"transactionId": f"more-2026-{secrets.token_hex(4)}", "iccid": iccid, "packageCode": package}
    placed = await client.post("/esim/topup", call | {"price": "1.20", "amount": "1.20"})
    async with asyncio.timeout(PATIENCE):
        while (await client.post("/esim/query", {"orderNo": placed.data["orderNo"]})).data["orderStatus"] != status:
            await asyncio.sleep(0.02)
    return placed.data["orderNo"]


async def _refunds(client: ApiClient) -> None:
    """One credited, one that waits for an operator, and an order that failed."""
    for package in ("TEST-OK", "TEST-REVIEW"):
        order = await _bought(client, (package, 2))
        await client.post("/esim/refund", {"orderNo": order["orderNo"], "remark": "the trip was cancelled"})
    await _bought(client, ("TEST-FAIL", 1))


async def _topups(client: ApiClient, operator: Browser) -> str:
    """One approved, one rejected, two that wait; the number of the first."""
    numbers: list[str] = []
    for amount in ("1000.00", "75.00", "250.00", "12500.00"):
        asked = {"amount": amount, "payMethod": "BANK_TRANSFER", "payReference": f"SEPA 2026-11-{amount}"}
        asked["transactionId"] = f"top-{secrets.token_hex(4)}"
        numbers.append((await client.post("/account/topup", asked)).data["topupNo"])
    await operator.post(f"/console/topups/{numbers[0]}/approve")
    await operator.post(f"/console/topups/{numbers[1]}/reject", {"reason": "no money came with this reference"})
    return numbers[0]


async def _refused(client: ApiClient) -> None:
    """Calls that are refused, each for something else; the last one was signed amiss."""
    await client.order(amount="1.00")
    await client.post("/esim/order", {"remark": "nothing in it"})
    await client.post("/esim/query", {"orderNo": "D1"}, **{"RT-RequestID": "not a uuid"})
    await client.send("/open-api/v1/esim/query", b'{"orderNo": "D1"}', client.headers(b'{"orderNo":"D1"}'))


async def _given_up(service: Service, order_no: str, client: ApiClient) -> str:
    """The first delivery of an order, once all of them have failed for good."""
    call = {"orderNo": order_no}
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await client.post("/webhook/delivery/list", call)).data["deliveries"]
            if len(found) == 2 and {one["status"] for one in found} == {"FAILED"}:
                return str(min(int(one["deliveryId"]) for one in found))
            await asyncio.sleep(0.02)


async def _looked_at(dealer: Browser) -> str:
    """A file of orders that nobody has bought."""
    lines = ("packageCode,quantity,remark,reference", "TEST-OK,2,Group of 12 May,B-1001", "TEST-PARTIAL,1,,B-1002")
    answer = await dealer.post("/console/bulk", {"text": "\n".join(lines)})
    return answer.headers["location"].rpartition("/")[2]


async def _notice_id(dealer: Browser) -> str:
    """Of what the dealer was told last."""
    found = re.search(r"/console/notices/(\d+)", (await dealer.get("/console/notices")).text)
    assert found
    return found[1]


async def _number(dealer: Browser) -> str:
    """Of the newest refused call, once it stands in the log."""
    async with asyncio.timeout(PATIENCE):
        while "101003" not in (text := (await dealer.get("/console/api-log")).text):
            await asyncio.sleep(0.05)
    return text.partition('data-href="/console/api-log/')[2].partition('"')[0]


async def _all_counted(service: Service, operator: Browser) -> None:
    """Until the overview shows all of it: it counts again every few seconds, and the supplier is found to be away."""
    async with service.database.connection() as connection:
        orders = await connection.fetchval("SELECT count(*) FROM orders")
    async with asyncio.timeout(PATIENCE):
        while True:
            text = (await operator.get("/console")).text
            if f">{orders}</a>" in text and "No call was" not in text and "has been down</span> <time" in text:
                return
            await asyncio.sleep(0.5)


async def _told(service: Service) -> str:
    """The supplier that is away is told of at once, and not a minute later; the mail, once all have arrived."""
    async with service.database.transaction() as connection:
        since = await connection.fetchval("SELECT since FROM supplier_health WHERE code = 'rt:near'")
        detail = "balance/query: ClientConnectorError"
        await outbox.add(connection, [supplier_down.unreachable("rt:near", detail, since)], since)
    async with asyncio.timeout(PATIENCE):
        while True:
            async with service.database.connection() as connection:
                waiting = await connection.fetchval(
                    "SELECT (SELECT count(*) FROM notice WHERE addressed_at IS NULL)"
                    " + (SELECT count(*) FROM notice_delivery WHERE due_at IS NOT NULL)"
                )
                if not waiting:
                    return str(await _sort_mails(connection))
            await asyncio.sleep(0.1)


async def _sort_mails(connection: Connection) -> int:
    """Mails that were sent side by side come into one order; the last stays what it is. Gives its id."""
    *numbers, last = [row["mail_id"] for row in await connection.fetch("SELECT mail_id FROM dev_mail ORDER BY 1")]
    rows = await connection.fetch("SELECT at, message FROM dev_mail WHERE mail_id < $1", last)
    heads = [(message_from_bytes(row["message"]), row) for row in rows]
    ordered = sorted(heads, key=lambda one: (one[0]["Subject"], one[0]["To"]))
    await connection.executemany(
        "UPDATE dev_mail SET at = $2, message = $3 WHERE mail_id = $1",
        [(number, row["at"], row["message"]) for number, (_, row) in zip(numbers, ordered, strict=True)],
    )
    return last


async def _unsure(service: Service, one: Browser) -> None:
    """An hour passes since this person gave the password."""
    async with service.database.connection() as connection:
        await connection.execute(
            "UPDATE console_session SET sure_at = sure_at - interval '1 hour' WHERE user_id = $1", one.user_id
        )


def _credentials(created: Created) -> dict[str, str]:
    return {"tenant_id": created.tenant_id, "app_key": created.app_key}
