"""Is each notice told, from its fact through the public door to the mail that arrives, and none twice?"""

import asyncio
import json
from datetime import datetime, timedelta

import msgspec

from dealer_server import clock
from dealer_server.fulfillment.health_monitor import HealthMonitor
from dealer_server.fulfillment.purchases import supplier_changes
from dealer_server.notices.looks import Limits
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.suppliers.contract import Health
from support.api_client import ApiClient, Service, running_service
from support.browser import signed_in
from support.console.operator_pages import see
from support.money.recharges import advance, recharged, shown
from support.notices.smtp_server import Mail, SmtpServer
from support.notices.told import all_told, facts, notice_worker, rows, user
from support.store_fixture import PACKAGES, stock_csv
from support.supplier_setup import Source, set_up
from support.webhook_fixture import Receiver, eventually


async def told(service: Service, mails: SmtpServer, **given: object) -> list[Mail]:
    """The mails that come now."""
    before = len(mails.mails)
    async with notice_worker(service, mails, **given) as one:  # type: ignore[arg-type]
        await all_told(one)
    return mails.mails[before:]


async def buys(dealer: ApiClient, count: int) -> None:
    for _ in range(count):
        assert (await dealer.order()).code == "000000"


async def tops_up(service: Service, dealer: ApiClient, amount: str) -> str:
    call = {"transactionId": f"top-{amount}", "amount": amount}
    no: str = (await dealer.post("/account/topup", call)).data["topupNo"]
    async with signed_in(service) as admin:
        await admin.post(f"/console/topups/{no}/approve")
    return no


async def test_a_balance_below_its_threshold_is_told_once_until_it_was_clearly_above(
    service: Service, dealer: ApiClient, mails: SmtpServer
):
    await user(service, dealer.tenant_id, "finance", f"till-{dealer.tenant_id}@example.com")
    await service.change(dealer.tenant_id, balance="10", low_balance="7")
    assert await told(service, mails) == []
    await buys(dealer, 2)
    [mail] = await told(service, mails)
    assert mail.to == [f"till-{dealer.tenant_id}@example.com"]
    assert mail.message["Subject"] == "[eSIM Dealer] Low balance: 6.40 USD"
    assert "below 7.00 USD, your threshold" in mail.plain and "Balance: 6.40 USD" in mail.plain
    await buys(dealer, 1)
    await service.change(dealer.tenant_id, balance="7.20")
    await buys(dealer, 1)
    assert await told(service, mails) == []
    await service.change(dealer.tenant_id, balance="8")
    assert await told(service, mails) == []
    await buys(dealer, 1)
    assert len(await told(service, mails)) == 1
    assert [one for one, _ in await facts(service, dealer.tenant_id)] == ["LOW_BALANCE"] * 2


async def test_without_a_threshold_25_and_10_percent_of_the_last_topup_are_told_once_each(
    service: Service, dealer: ApiClient, mails: SmtpServer
):
    await user(service, dealer.tenant_id, "finance", f"share-{dealer.tenant_id}@example.com")
    await service.change(dealer.tenant_id, balance="0")
    await tops_up(service, dealer, "20.00")
    [reviewed] = await told(service, mails)
    assert "Top-up approved: 20.00 USD" in reviewed.message["Subject"]
    async with signed_in(service) as admin, signed_in(service, "finance", dealer.tenant_id) as finance:
        terms = await see(admin, f"/console/dealers/{dealer.tenant_id}")
        assert "Low balance notice below 5.00 USD automatic: 25 % after a top-up" in terms
        assert "Low balance notice Below 5.00 USD again below 2.00 USD" in await see(finance, "/console/wallet")
    await buys(dealer, 9)  # 3.80 left
    [quarter] = await told(service, mails)
    assert "below 5.00 USD, 25 % of the balance after your last top-up" in " ".join(quarter.plain.split())
    await buys(dealer, 1)  # 2.00
    assert await told(service, mails) == []
    await buys(dealer, 1)  # 0.20
    [tenth] = await told(service, mails)
    assert "10 % of the balance" in " ".join(tenth.plain.split())
    assert await told(service, mails) == []
    await tops_up(service, dealer, "19.80")
    assert len(await told(service, mails)) == 1, "the top-up"
    await buys(dealer, 11)
    [both] = await told(service, mails)
    assert "10 % of" in " ".join(both.plain.split()), "at once below both: the lower is told"


async def test_an_order_writes_no_row_of_notices(service: Service, dealer: ApiClient):
    before = await rows(service, "SELECT (SELECT count(*) FROM notice), (SELECT count(*) FROM wallet_look)")
    await service.change(dealer.tenant_id, balance="2", low_balance="100")
    await buys(dealer, 1)
    assert await rows(service, "SELECT (SELECT count(*) FROM notice), (SELECT count(*) FROM wallet_look)") == before


async def test_a_rejected_topup_is_told_with_its_reason(
    service: Service, dealer: ApiClient, mails: SmtpServer, receiver: Receiver
):
    name = f"books-{dealer.tenant_id}@example.com"
    await user(service, dealer.tenant_id, "finance", name)
    async with signed_in(service, "admin", dealer.tenant_id) as own:
        await own.post("/console/webhooks/notice-url", {"notice_url": receiver.url})
    no = (await dealer.post("/account/topup", {"transactionId": "top-r", "amount": "75.00"})).data["topupNo"]
    async with signed_in(service) as admin:
        for _ in range(2):
            await admin.post(f"/console/topups/{no}/reject", {"reason": "<b>no money</b>\ncame & went"})
    [mail] = await told(service, mails)
    assert mail.to == [name] and "<b>" not in mail.html and "&lt;b&gt;no money&lt;/b&gt;" in mail.html
    assert "Reason: <b>no money</b> came & went" in mail.plain
    [request] = receiver.requests
    body = json.loads(request.body)
    assert list(body) == ["noticeType", "noticeId", "createTime", "data"]
    assert (body["noticeType"], body["data"]["status"], body["data"]["topupNo"]) == ("TOPUP_REVIEWED", "REJECTED", no)
    assert request.headers["rt-delivery-id"] == body["noticeId"] and request.headers["rt-delivery-attempt"] == "1"


async def test_changed_prices_are_told_to_the_dealers_whose_prices_they_are(
    service: Service, dealer: ApiClient, stranger: ApiClient, mails: SmtpServer
):
    names = [f"prices-{one.tenant_id}@example.com" for one in (dealer, stranger)]
    for one, name in zip((dealer, stranger), names, strict=True):
        await user(service, one.tenant_id, "developer", name)
    async with signed_in(service) as admin:
        home = f"/console/dealers/{stranger.tenant_id}"
        await admin.post(f"{home}/prices", {"package": "TEST-DELAY", "price": "1.65"})
        await admin.post(f"{home}/prices", {"package": "TEST-DELAY", "price": "1.65"})
    [own] = await told(service, mails)
    assert own.to == [names[1]] and "1.65 USD" in own.plain and "TEST-DELAY" in own.plain
    dearer = msgspec.structs.replace(PACKAGES["TEST-DELAY"], price=PACKAGES["TEST-DELAY"].price + 10_000)
    await put_packages(service.database, [dearer], "test", clock.now)
    [listed] = [mail for mail in await told(service, mails) if mail.to[0] in names]
    assert listed.to == [names[0]], "a dealer with a price of its own is not concerned"
    await put_packages(service.database, [dearer], "test", clock.now)
    assert await told(service, mails) == []
    await put_packages(service.database, [PACKAGES["TEST-DELAY"]], "test", clock.now)
    await service.change(dealer.tenant_id, markup="10")
    subjects = sorted(mail.message["Subject"] for mail in await told(service, mails) if mail.to == [names[0]])
    assert len(subjects) == 2 and "Price of TEST-DELAY: " in subjects[0] and "Prices of" in subjects[1]


class Down:
    code = "far"

    def __init__(self) -> None:
        self.up = False

    async def health(self) -> Health:
        return Health(self.up, "" if self.up else "the port is closed")


async def test_a_supplier_that_is_down_is_told_once_until_it_was_up(
    service: Service, database_url: str, mails: SmtpServer
):
    settings = {"baseUrl": "http://127.0.0.1:9", "accessCode": "a", "secretKey": "s"}
    await set_up(database_url, [Source("far", "rt_upstream", settings)], {})
    await user(service, None, "support", "help@example.com")
    remote = Down()
    monitor = HealthMonitor(service.database, remote, clock.now, lambda: None)  # type: ignore[arg-type]
    await monitor.check()
    assert await told(service, mails) == [], "one failed check may be a moment's fault"
    for _ in range(3):
        await monitor.check()
    [mail] = await told(service, mails)
    assert mail.to == ["help@example.com"] and "Supplier far is down" in mail.message["Subject"]
    assert "the port is closed" in mail.plain
    for remote.up in (True, False, False):
        await monitor.check()
    assert len(await told(service, mails)) == 1
    outages = "SELECT ended_at >= began_at, detail FROM supplier_outage WHERE code = 'far' ORDER BY began_at"
    assert await rows(service, outages) == [(True, "the port is closed"), (None, "the port is closed")]
    session = service.database.session()
    for _ in range(2):
        await supplier_changes.pause(session, "far", "refuses our key", clock.now())
    await session.close()
    [paused] = await told(service, mails)
    assert "Supplier far is paused" in paused.message["Subject"]


async def test_low_stock_is_told_once_until_it_was_loaded(service: Service, mails: SmtpServer):
    await user(service, None, "admin", "store@example.com")

    async def mine(below: int) -> list[Mail]:
        found = await told(service, mails, limits=Limits(stock_low=below, queue_hours=0))
        ours = [mail for mail in found if mail.to == ["store@example.com"]]
        return [mail for mail in ours if "DEMO-STOCK" in mail.message["Subject"]]

    [mail] = await mine(2)
    assert "Low stock: 0 left of DEMO-STOCK" in mail.message["Subject"]
    assert await mine(2) == []
    async with signed_in(service) as admin:
        await admin.post("/console/packages/DEMO-STOCK/stock", files={"file": stock_csv(2).encode()})
    assert await mine(2) == []
    assert len(await mine(3)) == 1
    assert await mine(0) == []


async def test_an_old_queue_is_told_once_a_day(service: Service, dealer: ApiClient, mails: SmtpServer):
    await user(service, None, "finance", "queue@example.com")
    limits, ahead = Limits(stock_low=0, queue_hours=24), timedelta()
    await dealer.post("/account/topup", {"transactionId": "top-old", "amount": "75.00"})
    found = []
    for hours in (1, 25, 25, 49):
        ahead = timedelta(hours=hours)
        mine = await told(service, mails, limits=limits, now=lambda: clock.now() + ahead)  # noqa: B023
        subjects = [mail.message["Subject"] for mail in mine if mail.to == ["queue@example.com"]]
        found.append([subject for subject in subjects if "waited more than 24 h" in subject])
    assert [len(subjects) for subjects in found] == [0, 1, 0, 1]


async def test_what_is_to_be_reviewed_is_told_once_until_the_queue_was_empty(
    service: Service, dealer: ApiClient, mails: SmtpServer
):
    await user(service, None, "finance", "review@example.com")
    limits, found = Limits(stock_low=0, queue_hours=0), []
    approve = "UPDATE topup SET status = 'APPROVED', reviewed_at = now() WHERE status = 'PENDING' RETURNING 1"
    await rows(service, approve)
    await told(service, mails, limits=limits)
    for round in range(3):
        if round != 1:
            await dealer.post("/account/topup", {"transactionId": f"top-review-{round}", "amount": "75.00"})
        mine = await told(service, mails, limits=limits)
        subjects = [mail.message["Subject"] for mail in mine if mail.to == ["review@example.com"]]
        found.append(len([one for one in subjects if "top-up" in one and "to review" in one]))
        if round == 1:
            await rows(service, approve)
            await told(service, mails, limits=limits)
    assert found == [1, 0, 1]


async def test_operators_are_told_of_a_dealer_whose_balance_is_low(
    service: Service, dealer: ApiClient, mails: SmtpServer
):
    await user(service, None, "finance", "watch@example.com")
    await user(service, None, "support", "not-watch@example.com")
    await service.change(dealer.tenant_id, balance="10", low_balance="9")
    await told(service, mails)
    await buys(dealer, 1)
    mine = [mail for mail in await told(service, mails) if "Low balance of" in mail.message["Subject"]]
    assert [mail.to for mail in mine if "watch@" in mail.to[0]] == [["watch@example.com"]]
    assert f"/console/dealers/{dealer.tenant_id}" in mine[0].plain


async def test_a_failing_receiver_is_told_by_the_worker_itself(
    database_url: str, receiver: Receiver, mails: SmtpServer
):
    """Everything joined as in production: 20 failures in a row open the breaker, then 410 disables the URL."""
    smtp = {"smtp_host": "127.0.0.1", "smtp_port": mails.port, "smtp_tls": "none", "smtp_from": "n@example.com"}
    async with (
        running_service(database_url, webhook_schedule="0,0,0,0,0,0,0,0", **smtp) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
    ):
        name = f"dev-{dealer.tenant_id}@example.com"
        await user(service, dealer.tenant_id, "developer", name)
        await user(service, dealer.tenant_id, "finance", f"not-{name}")
        receiver.answers = [500]
        await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
        await asyncio.gather(*[dealer.order() for _ in range(6)])
        [mail] = await mails.received(1, name)
        assert mail.to == [name] and "Your webhook endpoint is failing" in mail.message["Subject"]
        assert receiver.url in mail.plain
        await dealer.post("/webhook/set", {"callbackUrl": ""})
        receiver.answers = [410]
        await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
        await dealer.order()
        [_, gone] = await mails.received(2, name)
        assert all(mail.to != [f"not-{name}"] for mail in mails.mails)
        assert "is paused" in gone.message["Subject"]

        async def recorded() -> bool:
            states = await rows(service, "SELECT state FROM notice_delivery WHERE tenant_id = $1", dealer.tenant_id)
            return states == [("DELIVERED",)] * 2

        await eventually(recorded)


async def test_plans_that_end_tomorrow_are_told_once_without_those_that_a_recharge_follows(
    service: Service, mails: SmtpServer, database_url: str
):
    tenant = await service.tenant(balance="1000", qps=0)
    await user(service, int(tenant.tenant_id), "admin", f"shop-{tenant.tenant_id}@example.com")
    async with running_service(database_url, supplier_speed=1) as fulfilled, fulfilled.client(tenant) as dealer:
        orders = [await dealer.delivered((await dealer.order()).data["orderNo"]) for _ in range(4)]
        for order in orders[:3]:
            for step in ("DOWNLOAD", "INSTALL", "ENABLE", "START"):
                await advance(dealer, order, step)
        ending, followed, other, _ = orders
        await recharged(dealer, followed, "TEST-TOPUP-QUEUE")
        plan, others = await shown(dealer, ending), await shown(dealer, other)
    day_before = datetime.fromisoformat(plan["planUseEndTime"]) - timedelta(days=1)
    [mail] = await told(service, mails, now=lambda: day_before)
    assert "2 plans end on" in mail.message["Subject"] and plan["iccid"][-4:] in mail.plain
    assert plan["iccid"] not in mail.plain
    assert await told(service, mails, now=lambda: day_before + timedelta(seconds=1)) == []
    of_dealer = "SELECT data::text FROM notice WHERE tenant_id = $1 AND notice_type = 'PLANS_ENDING'"
    [[data]] = await rows(service, of_dealer, int(tenant.tenant_id))
    listed = [(one["profileId"], one["planUseEndTime"]) for one in json.loads(data)["plans"]]
    assert listed == [(int(one["profileId"]), one["planUseEndTime"]) for one in (plan, others)]
