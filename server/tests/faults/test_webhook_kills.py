"""kill -9 of the worker at random moments, while dealers buy and profiles are used: every event arrives, in order, and
only deliveries that were in flight arrive twice."""

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from dealer_server.store.tenants import data_key
from support import trading
from support.processes import environment, running
from support.trading import Trading
from support.webhook_fixture import OK, Dealer, Receiver, Request, TestClock, WebhookFixture, answer

SCHEDULE = "0,0.2,0.2,0.2,0.2,0.2,0.2,0.2"
MOST_ATTEMPTS = 8
RECEIVED_BEFORE_A_KILL = 1, 250
BUYERS = 3
LANES = "pg_stat_activity WHERE datname = current_database() AND application_name = 'esim-dealer session'"


@pytest.fixture
async def workload(database_url: str) -> AsyncIterator[Trading]:
    async with trading.opened(database_url) as one:
        yield one


@dataclass
class AcceptedEvents:
    """Answers for the receiver: slowly, with some failures, and keeps a record of what it accepted."""

    receiver: Receiver
    accepted: Counter[str] = field(default_factory=Counter)  # by RT-Delivery-ID
    newest: dict[int, int] = field(default_factory=dict)  # orderId: the highest version it accepted
    under_way: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.receiver.answers = [self.answer]

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> bytes | None:
        order_id, chance = request.json["orderId"], random.random()
        if order_id in self.under_way:
            self.faults.append(f"two requests of order {order_id} at a time")
        self.under_way.add(order_id)
        try:
            await asyncio.sleep(random.uniform(0, 0.02))
        finally:
            self.under_way.discard(order_id)
        if chance < 0.04:
            return answer(500)
        if chance < 0.06:
            writer.transport.abort()
            return None
        self.accepted[request.headers["rt-delivery-id"]] += 1
        self.newest[order_id] = max(self.newest.get(order_id, 0), version_of(request))
        return OK

    def first_attempts(self) -> dict[int, list[int]]:
        """Per order the versions of its first attempts, as they came."""
        firsts = defaultdict(list)
        for request in self.receiver.requests:
            if request.number == 1:
                firsts[request.json["orderId"]].append(version_of(request))
        return firsts


def version_of(request: Request) -> int:
    return int(request.headers["rt-order-version"])


@asynccontextmanager
async def used(workload: Trading) -> AsyncIterator[None]:
    """Usage of delivered profiles is reported until the end of the block, so that there are always new events. Profiles
    from stock are left out."""
    async with workload.database.connection() as connection:
        data_keys = await data_key.load(connection, workload.service.settings.master_keys)
    webhooks = WebhookFixture(workload.database, data_keys, workload.service.settings.master_keys, TestClock())

    async def report() -> None:
        for usage_bytes in itertools.count(1):
            delivered = await workload.rows(
                "SELECT tenant_id, order_id FROM orders WHERE delivery_status = 'DELIVERED' AND (tenant_id, order_id)"
                " NOT IN (SELECT tenant_id, order_id FROM order_item WHERE supplier = 'stock')"
                " ORDER BY random() LIMIT 8"
            )
            for tenant_id, order_id in delivered:
                await webhooks.use(Dealer(tenant_id, "", ""), order_id, usage_bytes)
            if not delivered:
                await workload.buyers.next_acknowledged()

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()
        [ended] = await asyncio.gather(reporting, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), ended


async def lanes(workload: Trading) -> set[object]:
    return {row[0] for row in await workload.rows(f"SELECT pid FROM {LANES}")}


async def killed_at_random(workload: Trading, times: int) -> Counter[str]:
    """Kills one worker after the other; the last one delivers the rest. How often each delivery was in flight."""
    in_flight: Counter[str] = Counter()
    env = environment(workload.url, DEALER_WEBHOOK_SCHEDULE=SCHEDULE)
    async with running("serve", "--port", "0", env=env) as serve:
        url = await serve.ready()
        async with workload.buyers.buying(url, count=BUYERS), used(workload):
            for _ in range(times):
                others = await lanes(workload)
                async with running("work", env=env) as work:
                    received = len(workload.receiver.requests)
                    await workload.receiver.received(received + random.randint(*RECEIVED_BEFORE_A_KILL))
                    of_worker = await lanes(workload) - others
                    await work.kill()
                workload.kills["at random"] += 1
                await workload.becomes_empty(f"{LANES} AND pid IN ({', '.join(map(str, of_worker))})")
                held = await workload.rows("SELECT delivery_id::text FROM webhook_delivery WHERE state = 'IN_FLIGHT'")
                in_flight.update(str(row[0]) for row in held)
                await workload.leases_run_out()
        async with running("work", env=env):
            await workload.all_is_well(url)
    return in_flight


async def survives(workload: Trading, times: int) -> None:
    events = AcceptedEvents(workload.receiver)
    in_flight = await killed_at_random(workload, times)
    repeated = {delivery_id: count - 1 for delivery_id, count in events.accepted.items() if count > 1}
    print(f"\n{times} kills, {in_flight.total()} in flight, {sum(repeated.values())} repeated")
    assert events.faults == []
    assert in_flight, "no kill came while a delivery was in flight"
    for delivery_id, count in repeated.items():
        assert count <= in_flight[delivery_id], "accepted twice, and not because of a kill"
    for order_id, versions in events.first_attempts().items():
        assert versions == sorted(versions), order_id
    stand = await workload.rows("SELECT order_id, version FROM orders")
    assert {order_id: events.newest.get(order_id) for order_id, _ in stand} == dict(stand), (
        "the last version of every order arrived"
    )
    await _attempts_are_few_and_some_are_lost(workload)


async def _attempts_are_few_and_some_are_lost(workload: Trading) -> None:
    [(most_counted, most_recorded, lost)] = await workload.rows(
        "SELECT (SELECT max(attempt_count) FROM webhook_delivery), max(number), count(*) FILTER (WHERE error = 'LOST')"
        " FROM webhook_attempt"
    )
    assert most_counted == most_recorded <= MOST_ATTEMPTS
    assert lost


async def test_worker_killed_five_times_repeats_only_deliveries_in_flight(workload: Trading):
    await survives(workload, 5)


@pytest.mark.soak
async def test_worker_killed_fifty_times_repeats_only_deliveries_in_flight(workload: Trading):
    await survives(workload, 50)
