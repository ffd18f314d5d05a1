"""kill -9 of API and worker while dealers buy: the points, and what must hold afterwards."""

import asyncio
import itertools
import random
from collections.abc import Iterable, Sequence

from dealer_server.failpoints import Failpoint
from support.buying_dealers import BUYERS
from support.processes import environment, running
from support.trading import Trading

KILLED = -9
REACHED_WITHIN = 120.0  # seconds; a point needs traffic of its kind, which pauses while the API is down
# A delay kills in the middle of what follows the point: the COMMIT, or the one statement of the fast path.
# The locking path begins with repeats of orders that a process which was killed before has placed.
SERVE_POINTS = [
    Failpoint("order.fast.before", 5),
    Failpoint("order.fast.before", 5, 0.0004),
    Failpoint("order.fast.committed", 5),
    Failpoint("order.before_begin"),
    Failpoint("order.locked", 2),
    Failpoint("order.written", 2),
    Failpoint("order.written", 2, 0.0002),
    Failpoint("order.committed", 3),
]
WORK_POINTS = [
    Failpoint("fulfillment.claimed", 2),
    Failpoint("fulfillment.answered", 2),
    Failpoint("fulfillment.written", 2),
    Failpoint("fulfillment.written", 3, 0.0002),
    Failpoint("fulfillment.recorded", 3),
    Failpoint("webhook.claimed", 2),
    Failpoint("webhook.frozen", 2),
    Failpoint("webhook.posted", 20),
    Failpoint("webhook.recorded", 3),
]


def anywhere(points: Sequence[Failpoint], count: int) -> Iterable[Failpoint]:
    """Every point in turn, at a random arrival and, where it is delayed, after a random time."""
    for point in itertools.islice(itertools.cycle(points), count):
        times = random.randint(1, 4 * point.times)
        yield Failpoint(point.name, times, random.uniform(0.00001, 0.0015) if point.seconds else 0)


async def survives(
    workload: Trading, serve_at: Iterable[Failpoint], work_at: Iterable[Failpoint], buyers: int = BUYERS
) -> dict[str, int]:
    """Kills API and worker at these points, independently; counts which unknown outcomes were placed."""
    over, env = asyncio.Event(), environment(workload.url)
    async with asyncio.TaskGroup() as deaths:  # where one fails the other has no reason to go on
        working = deaths.create_task(_kill_worker(workload, work_at))
        working.add_done_callback(lambda _: over.set())
        unseen = await _kill_api(workload, serve_at, over, buyers)
    await workload.all_sessions_end()
    await workload.leases_run_out()
    async with running("serve", "--port", "0", env=env) as serve, running("work", env=env):
        await workload.all_is_well(await serve.ready())
    return unseen


async def _kill_api(workload: Trading, points: Iterable[Failpoint], over: asyncio.Event, buyers: int) -> dict[str, int]:
    """Dealers buy while the API is killed at one point after the other, and then until `over`."""
    env, unseen = environment(workload.url), {"placed": 0, "not placed": 0}
    for point in points:
        async with running("serve", "--port", "0", env=env, kill_at=str(point)) as serve:
            url = await serve.ready()
            async with workload.buyers.buying(url, count=buyers):
                assert await serve.ended(REACHED_WITHIN) == KILLED, (point, serve.said)
        workload.kills[point.name] += 1
        placed = await _placed_unseen(workload)
        unseen["placed"] += placed
        unseen["not placed"] += len(workload.buyers.unknown) - placed
        await workload.check()
    async with running("serve", "--port", "0", env=env) as serve:
        url = await serve.ready()
        async with workload.buyers.buying(url, count=buyers):
            await over.wait()
    return unseen


async def _kill_worker(workload: Trading, points: Iterable[Failpoint]) -> None:
    for point in points:
        async with running("work", env=environment(workload.url), kill_at=str(point)) as work:
            assert await work.ended(REACHED_WITHIN) == KILLED, (point, work.said)
        workload.kills[point.name] += 1
        await workload.leases_run_out()


async def _placed_unseen(workload: Trading) -> int:
    """How many of the orders with an unknown outcome are there."""
    keys = [one.key for one in workload.buyers.unknown]
    found = await workload.rows(
        "SELECT FROM orders JOIN unnest($1::bigint[], $2::text[]) AS key(tenant_id, transaction_id)"
        " USING (tenant_id, transaction_id)",
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return len(found)
