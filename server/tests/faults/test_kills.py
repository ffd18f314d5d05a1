"""kill -9 of the API and of the worker, at every failpoint: what was acknowledged is there, a retry
gives exactly one order, the books are right, everything is delivered and told."""

from collections.abc import AsyncIterator

import pytest

from dealer_server import failpoints
from dealer_server.failpoints import Failpoint
from support import trading
from support.faults.kills import SERVE_POINTS, WORK_POINTS, anywhere, survives
from support.trading import Trading


@pytest.fixture
async def workload(database_url: str) -> AsyncIterator[Trading]:
    async with trading.opened(database_url) as one:
        yield one


def test_a_failpoint_is_armed_by_name_count_and_delay_and_does_nothing_unarmed():
    for armed in (*SERVE_POINTS, *WORK_POINTS):
        assert failpoints.parse(str(armed)) == armed
    assert failpoints.parse("order.locked") == Failpoint("order.locked", 1, 0)
    with pytest.raises(ValueError, match="DEALER_FAILPOINT"):
        failpoints.parse("order locked")
    assert failpoints.hit is failpoints._unarmed


async def test_a_kill_at_each_failpoint_loses_nothing(workload: Trading):
    await survives(workload, SERVE_POINTS, WORK_POINTS)


@pytest.mark.soak
async def test_hundreds_of_kills_lose_nothing(workload: Trading):
    unseen = await survives(workload, anywhere(SERVE_POINTS, 130), anywhere(WORK_POINTS, 110))
    print(f"\n{workload.kills.total()} kills: {dict(workload.kills)}; of the orders with an unknown outcome {unseen}")
    assert workload.kills.total() == 240
    assert unseen["placed"] and unseen["not placed"], "the kills came at the same moment"
