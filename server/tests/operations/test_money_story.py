"""Lives of money that hypothesis makes up, through the public API, beside a pure model that must agree exactly; audit
after every step.

Orders, replays, refunds of every shape and their repeats, cancellations, use, suppliers' answers, reviews, top-ups,
secret resets, days that pass; and, with real processes, the death of API and worker.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.dev import catalogue as generate
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.operations.refunds.review import approve_refund, reject_refund
from dealer_server.operations.tenants import credentials
from dealer_server.operations.topups.review import approve_topup, reject_topup
from support.api_client import ApiClient, Service, running_service, test_settings
from support.money import refunds as refund_calls
from support.money.refunds import named, profiles, query, refund
from support.patience import PATIENCE
from support.processes import Process, environment, running
from support.supplier_setup import fresh

PRICE = Decimal("1.80")
PACKAGES = ("TEST-OK", "TEST-ASYNC", "TEST-REJECT", "TEST-REVIEW")
Fate = Literal["LIVE", "USED", "HELD", "VOIDING", "CANCELLED", "REFUNDED"]
STEPS = ("buy", "replay", "refund", "repeat_refund", "cancel", "use", "answer", "review", "ask_for_money", "give_money",
         "reset_secret", "day_passes")  # fmt: skip


@dataclass
class Bought:
    """An order as the model knows it: what each profile of each line came to."""

    order_no: str
    call: dict[str, Any]
    lines: list[tuple[str, str, dict[int, Fate]]]  # packageCode, itemNo, fates by profileId

    def fates(self) -> dict[int, Fate]:
        return {one: fate for _, _, fates in self.lines for one, fate in fates.items()}


@dataclass
class Pending:
    """A refund that was accepted: what it holds, and what its suppliers will say."""

    refund_no: str
    order: Bought
    held: dict[int, str]  # profileId → packageCode
    call: dict[str, Any]
    approved: bool | None = None
    answered: bool = False


@dataclass
class Model:
    balance: Decimal
    orders: list[Bought] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    topups: list[tuple[str, Decimal]] = field(default_factory=list)
    asked_today: list[dict[str, Any]] = field(default_factory=list)  # refunds that were accepted within a day
    old_secret: str | None = None  # still good, for a day


class Story:
    def __init__(self, service: Service, dealer: ApiClient, chance: random.Random):
        self.service = service
        self.dealer = dealer
        self.chance = chance
        self.model = Model(Decimal(60))

    async def live(self, steps: Sequence[str]) -> None:
        await self.buy()
        for step in steps:
            await getattr(self, step)()
            await self.agree()
        await self.end()

    async def buy(self) -> None:
        packages = self.chance.sample(PACKAGES, self.chance.randint(1, 3))
        quantity = self.chance.randint(1, 3)
        amount = PRICE * quantity * len(packages)
        items = [{"packageCode": one, "quantity": quantity, "price": "1.80"} for one in packages]
        call = {"transactionId": f"t-{secrets.token_hex(8)}", "amount": str(amount), "items": items}
        reply = await self.dealer.post("/esim/order", call)
        if amount > self.model.balance:
            assert reply.code == "200007", reply
            return
        assert reply.code == "000000", reply
        self.model.balance -= amount
        data = await self.dealer.delivered(reply.data["orderNo"])
        lines = [
            (one["packageCode"], one["itemNo"], {int(each["profileId"]): "LIVE" for each in one["profiles"]})
            for one in data["items"]
        ]
        self.model.orders.append(Bought(data["orderNo"], call, lines))

    async def replay(self) -> None:
        if not self.model.orders:
            return
        call = self.chance.choice(self.model.orders).call
        assert (await self.dealer.post("/esim/order", call)).data["duplicate"] is True
        changed = call | {"amount": "999", "items": call["items"][:1]}
        assert (await self.dealer.post("/esim/order", changed)).code == "310402"

    async def refund(self) -> None:
        if not self.model.orders:
            return
        bought = self.chance.choice(self.model.orders)
        call, targets, named = self._scope(bought)
        reply = await self.dealer.post("/esim/refund", call | {"refundTransactionId": f"r-{secrets.token_hex(8)}"})
        fates = bought.fates()
        if any(fates[one] == "HELD" for one in targets):
            assert reply.code == "200004", reply
            return
        live = [one for one in targets if fates[one] == "LIVE"]
        if not live or (set(targets) & named) - set(live):
            assert reply.code == "200003", reply
            return
        assert reply.code == "000000" and Decimal(reply.data["refundAmount"]) == PRICE * len(live), reply
        packages = {one: package for package, _, each in bought.lines for one in each}
        if all(packages[one] == "TEST-OK" for one in live):
            assert reply.data["status"] == "REFUNDED"
            self.model.balance += PRICE * len(live)
            self._become(bought, live, "REFUNDED")
        else:
            assert reply.data["status"] == "REFUNDING"
            self._become(bought, live, "HELD")
            held = {one: packages[one] for one in live}
            self.model.pending.append(Pending(reply.data["refundNo"], bought, held, call))
        self.model.asked_today.append(call)

    async def repeat_refund(self) -> None:
        """The same call, by its meaning, gives the same refund for a day."""
        if self.model.asked_today:
            again = await self.dealer.post("/esim/refund", self.chance.choice(self.model.asked_today))
            assert (again.code, again.data["duplicate"]) == ("000000", True), again

    async def use(self) -> None:
        """A phone downloads an eSIM: it cannot be refunded any more."""
        if not self.model.orders:
            return
        bought = self.chance.choice(self.model.orders)
        live = [one for one, fate in bought.fates().items() if fate == "LIVE"]
        if live:
            used = self.chance.choice(live)
            reply = await self.dealer.post("/test/profile/advance", {"profileId": used, "step": "DOWNLOAD"})
            assert reply.code == "000000", reply
            self._become(bought, [used], "USED")

    async def day_passes(self) -> None:
        """What holds for 24 hours ends: a repeat of a refund, the old secret."""
        run, now = self.service.database.run, self.service.database.clock.now()
        await run(lambda db: db.execute("UPDATE refund SET created_at = $1", now - timedelta(hours=25)))
        over = "UPDATE credential SET previous_until = $1 WHERE previous_until IS NOT NULL"
        await run(lambda db: db.execute(over, now - timedelta(hours=1)))
        self.model.asked_today.clear()
        if self.model.old_secret is not None:
            await self._refused(replace(self.dealer, app_secret=self.model.old_secret))
            self.model.old_secret = None

    async def _refused(self, client: ApiClient) -> None:
        await self._touched()
        async with asyncio.timeout(PATIENCE):
            while (await client.post("/health")).code != "101003":
                await asyncio.sleep(0.02)

    async def _touched(self) -> None:
        """Every process looks at the credentials anew."""
        await self.service.database.run(
            lambda db: db.execute("UPDATE change SET version = version + 1 WHERE subject = 'tenant'")
        )

    def _scope(self, bought: Bought) -> tuple[dict[str, Any], list[int], set[int]]:
        """A call, the profiles it names, and those it names one by one."""
        if self.chance.random() < 0.3:
            return {"orderNo": bought.order_no}, list(bought.fates()), set()
        items, targets, named = [], [], set()
        for _, item_no, fates in self.chance.sample(bought.lines, self.chance.randint(1, len(bought.lines))):
            ids = self.chance.sample(list(fates), self.chance.randint(0, len(fates)))
            items.append({"itemNo": item_no, "profiles": [{"profileId": one} for one in ids]})
            targets += ids or fates
            named |= set(ids)
        return {"orderNo": bought.order_no, "items": items}, targets, named

    async def cancel(self) -> None:
        if not self.model.orders:
            return
        bought = self.chance.choice(self.model.orders)
        package, _, fates = self.chance.choice(bought.lines)
        profile_id, fate = self.chance.choice(list(fates.items()))
        reply = await self.dealer.post("/esim/profile/cancel", {"profileId": profile_id})
        if fate == "HELD":
            assert reply.code == "200004", reply
            return
        asked = package == "TEST-ASYNC" and fate in ("LIVE", "USED", "VOIDING")
        assert reply.data["asyncStatus"] == ("PENDING" if asked else "COMPLETED"), reply
        if fate in ("LIVE", "USED"):
            self._become(bought, [profile_id], "VOIDING" if asked else "CANCELLED")

    async def answer(self) -> None:
        """Every supplier that was asked answers. A worker that asked just before puts its next question off: so again
        and again."""
        sql = (
            "UPDATE void_request SET created_at = now() - interval '1 year', due_at = now() WHERE outcome IS NULL"
            " RETURNING 1"
        )
        async with asyncio.timeout(PATIENCE):
            while await self.service.database.run(lambda connection: connection.fetchval(sql)):
                await asyncio.sleep(0.1)
        for bought in self.model.orders:
            self._become(bought, [one for one, fate in bought.fates().items() if fate == "VOIDING"], "CANCELLED")
        for one in list(self.model.pending):
            one.answered = True
            if "TEST-REVIEW" not in one.held.values() or one.approved is not None:
                await self._settle(one)

    async def review(self) -> None:
        waiting = [one for one in self.model.pending if "TEST-REVIEW" in one.held.values() and one.approved is None]
        if not waiting:
            return
        one = self.chance.choice(waiting)
        one.approved = self.chance.random() < 0.5
        if one.approved:
            await approve_refund(self.service.database, one.refund_no, "ops", clock.now)
        else:
            await reject_refund(self.service.database, one.refund_no, "no", "ops", clock.now)
        if one.answered or not {"TEST-ASYNC", "TEST-REJECT"} & set(one.held.values()):
            await self._settle(one)

    async def _settle(self, one: Pending) -> None:
        """What the suppliers and the operator said becomes a credit, or a release."""
        refund_id = await self._refund_id(one)
        await self._quiet(f"SELECT status <> 'REFUNDING' FROM refund WHERE refund_id = {refund_id}")
        given = [
            profile_id
            for profile_id, package in one.held.items()
            if package in ("TEST-OK", "TEST-ASYNC") or (package == "TEST-REVIEW" and one.approved)
        ]
        self.model.balance += PRICE * len(given)
        self._become(one.order, given, "REFUNDED")
        self._become(one.order, [each for each in one.held if each not in given], "LIVE")
        self.model.pending.remove(one)
        if not given and one.call in self.model.asked_today:  # all of it was rejected: it may be asked for anew
            self.model.asked_today.remove(one.call)

    async def _refund_id(self, one: Pending) -> int:
        from dealer_server.rules.orders import identity

        found = identity.refund_id(one.refund_no)
        assert found is not None
        return found

    async def ask_for_money(self) -> None:
        amount = Decimal(self.chance.randint(1, 20))
        call = {"transactionId": f"u-{secrets.token_hex(8)}", "amount": str(amount)}
        data = (await self.dealer.post("/account/topup", call)).data
        if data:
            self.model.topups.append((data["topupNo"], amount))

    async def give_money(self) -> None:
        if not self.model.topups:
            return
        topup_no, amount = self.model.topups.pop(self.chance.randrange(len(self.model.topups)))
        if self.chance.random() < 0.7:
            await approve_topup(self.service.database, topup_no, "ops", clock.now)
            self.model.balance += amount
        else:
            await reject_topup(self.service.database, topup_no, "no", "ops", clock.now)

    async def reset_secret(self) -> None:
        keys = self.service.settings.master_keys
        secret = await credentials.reset_secret(self.service.database, keys, self.dealer.app_key, "ops", clock.now)
        async with asyncio.timeout(PATIENCE):
            while True:
                again = replace(self.dealer, app_secret=secret)
                if (await again.post("/health")).code == "000000":
                    break
                await asyncio.sleep(0.02)
        assert (await self.dealer.post("/health")).code == "000000", "the old one is good for a day"
        self.model.old_secret = self.dealer.app_secret
        self.dealer = again

    def _become(self, bought: Bought, ids: list[int], fate: Fate) -> None:
        for _, _, fates in bought.lines:
            for one in ids:
                if one in fates:
                    fates[one] = fate

    async def _quiet(self, sql: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await self.service.database.run(lambda connection: connection.fetchval(sql)):
                await asyncio.sleep(0.005)

    async def agree(self) -> None:
        """Service and model say the same, and no promise is broken."""
        shown = Decimal((await self.dealer.post("/account/balance")).data["balance"])
        assert shown == self.model.balance
        assert await self.service.audit() == []

    async def end(self) -> None:
        """Everything that waits is decided; then every order is as the model says."""
        while any("TEST-REVIEW" in one.held.values() and one.approved is None for one in self.model.pending):
            await self.review()
        await self.answer()
        await self.agree()
        for bought in self.model.orders:
            data = (await self.dealer.post("/esim/query", {"orderNo": bought.order_no})).data
            fates = bought.fates()
            for item in data["items"]:
                for one in item["profiles"]:
                    gone = fates[int(one["profileId"])] in ("REFUNDED", "CANCELLED")
                    assert (one["lifecycleStatus"] == "CANCELLED") == gone, (fates, one)
            refunded = sum(fate == "REFUNDED" for fate in fates.values())
            assert Decimal(str(data["refundAmount"])) == PRICE * refunded
            assert (data["payStatus"] == "REFUNDED") == (refunded == len(fates))
            assert data["orderStatus"] == ("REFUNDED" if refunded == len(fates) else "COMPLETED")
        entries = await self.dealer.post("/account/statement", {"pager": {"pageSize": 500}})
        assert sum(Decimal(one["amount"]) for one in entries.data["entries"]) == self.model.balance


@pytest.fixture(scope="module")
async def slow(database_url: str) -> AsyncIterator[Service]:
    """A service whose suppliers answer when the story says so."""
    async with running_service(database_url, supplier_speed=1e-3) as service:
        yield service


stories = given(chance=st.randoms(use_true_random=False), steps=st.lists(st.sampled_from(STEPS), max_size=40))
quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@stories
async def test_money_is_exact_in_random_stories(slow: Service, chance: random.Random, steps: list[str]):
    async with slow.client(await slow.tenant(balance="60", qps=0)) as dealer:
        await Story(slow, dealer, chance).live(steps)


@pytest.mark.soak
@settings(quick, max_examples=60)
@stories
async def test_money_is_exact_in_sixty_long_stories(slow: Service, chance: random.Random, steps: list[str]):
    async with slow.client(await slow.tenant(balance="60", qps=0)) as dealer:
        await Story(slow, dealer, chance).live(steps)


class Deadly(Story):
    """The same with API and worker as processes of their own, which die."""

    def __init__(self, service: Service, dealer: ApiClient, chance: random.Random, stack: AsyncExitStack):
        super().__init__(service, dealer, chance)
        self.stack = stack
        self.env = environment(service.settings.database_url, DEALER_SUPPLIER_SPEED="0.001")
        self.api: Process
        self.worker: Process

    async def start(self) -> None:
        self.api = await self.stack.enter_async_context(running("serve", "--port", "0", env=self.env))
        self.worker = await self.stack.enter_async_context(running("work", env=self.env))
        self.dealer = replace(self.dealer, url=await self.api.ready())

    async def die(self) -> None:
        """kill -9 of both while a refund or an order is under way; a minute passes, and the same is asked for again."""
        call = {"transactionId": f"t-{secrets.token_hex(8)}", "amount": "1.80",
                "items": [{"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}]}  # fmt: skip
        asking = asyncio.create_task(self.dealer.post("/esim/order", call))
        await asyncio.sleep(self.chance.random() * 0.01)
        await asyncio.gather(self.api.kill(), self.worker.kill())
        await asyncio.gather(asking, return_exceptions=True)
        await self._quiet(
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'esim-dealer session'"
        )
        for table in ("order_item", "void_request", "profile_life"):
            due = f"UPDATE {table} SET due_at = now() WHERE claim IS NOT NULL AND due_at > now()"
            await self.service.database.run(lambda db, due=due: db.execute(due))
        await self.start()
        reply = await self.dealer.post("/esim/order", call)
        if self.model.balance < PRICE:
            assert reply.code == "200007", reply
            return
        assert reply.code == "000000", reply
        self.model.balance -= PRICE
        data = await self.dealer.delivered(reply.data["orderNo"])
        [item] = data["items"]
        fates: dict[int, Fate] = {int(one["profileId"]): "LIVE" for one in item["profiles"]}
        self.model.orders.append(Bought(data["orderNo"], call, [("TEST-OK", item["itemNo"], fates)]))


async def deadly(postgres: str, template: str, chance: random.Random, steps: Sequence[str]) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(fresh(postgres, template))
        database = await Database.open(url)
        stack.push_async_callback(database.close)
        await put_packages(database, generate.catalogue("test"), "test", clock.now)
        service = Service("", database, test_settings(url))
        dealer = await stack.enter_async_context(service.client(await service.tenant(balance="60", qps=0)))
        story = Deadly(service, dealer, chance, stack)
        await story.start()
        await story.live(steps)


async def test_money_is_exact_when_processes_are_killed(postgres: str, template: str):
    steps = ["refund", "die", "cancel", "ask_for_money", "refund", "die", "answer", "refund", "die", "give_money"]
    await deadly(postgres, template, random.Random(7), steps)


@pytest.mark.soak
@settings(quick, max_examples=15)
@given(chance=st.randoms(use_true_random=False), steps=st.lists(st.sampled_from([*STEPS, "die", "die"]), max_size=25))
async def test_money_is_exact_in_random_stories_with_kills(
    postgres: str, template: str, chance: random.Random, steps: list[str]
):
    await deadly(postgres, template, chance, steps)


async def test_profiles_of_a_pending_refund_cannot_be_cancelled_or_refunded(slow: Service):
    async with slow.client(await slow.tenant(balance="100", qps=0)) as dealer:
        order = await refund_calls.bought(dealer, "TEST-ASYNC", quantity=2)
        first = profiles(order)[0]
        assert (await refund(dealer, order, items=named(order, {"iccid": first["iccid"]}))).data[
            "status"
        ] == "REFUNDING"
        held = await query(dealer, order)
        assert held["orderStatus"] == "REFUNDING" and profiles(held)[0]["lifecycleStatus"] == "DELIVERED"
        overlapping = await refund(dealer, order)
        assert overlapping.code == "200004"
        assert overlapping.data["profiles"] == [{"profileId": int(first["profileId"]), "reason": "PENDING_REFUND"}]
        assert (await dealer.post("/esim/profile/cancel", {"iccid": first["iccid"]})).code == "200004"
        other = await refund(dealer, order, items=named(order, {"iccid": profiles(order)[1]["iccid"]}))
        assert other.code == "000000"
        assert await slow.audit() == []
