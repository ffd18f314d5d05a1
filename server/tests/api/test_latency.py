"""How fast calls were answered is counted minute by minute, of all processes, and never in the way of a call."""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dealer_server import clock
from dealer_server.api.latency import LatencyRecorder
from dealer_server.rules.access import latency_histogram
from dealer_server.store.console import overview
from dealer_server.store.console.overview import HOUR, Hour
from support.api_client import Service, running_service

AT = datetime(2025, 11, 20, 8, 15, 30, tzinfo=UTC)
EIGHT = datetime(2025, 11, 20, 8, tzinfo=UTC)


class ManualClock:
    """A clock that the test sets."""

    def __init__(self, now: datetime):
        self.now = now

    def __call__(self) -> datetime:
        return self.now


async def hours(service: Service, start: datetime, count: int) -> list[Hour]:
    async with service.database.connection() as connection:
        return await overview.hours(connection, start, count)


@given(st.lists(st.floats(0, 30, exclude_min=True), min_size=1, max_size=200), st.integers(1, 100))
def test_a_percentile_is_never_below_the_true_one_and_at_most_a_fifth_above(seconds: list[float], percent: int):
    counts = [0] * latency_histogram.BUCKETS
    for duration in seconds:
        counts[latency_histogram.bucket(duration)] += 1
    true = sorted(seconds)[-(-len(seconds) * percent // 100) - 1]
    bounds = latency_histogram.BOUNDS
    assert latency_histogram.percentile(counts, percent) == bounds[min(bisect_left(bounds, true), len(bounds) - 1)]


def test_no_call_has_no_percentile():
    assert latency_histogram.percentile([0] * latency_histogram.BUCKETS, 95) is None


async def test_what_several_processes_counted_is_added_up_by_the_hour(service: Service):
    manual_clock = ManualClock(AT)
    first, second = LatencyRecorder(service.database, manual_clock), LatencyRecorder(service.database, manual_clock)
    async with first.running(), second.running():
        for recorder in (first, second):
            recorder.answered(False, 0.001, 200)
            recorder.answered(True, 0.010, 200)
        second.answered(True, 1.0, 503)
    [eight, nine] = await hours(service, EIGHT, 2)
    assert (sum(eight.reads), sum(eight.writes), eight.failed) == (2, 3, 1)
    assert eight.writes[latency_histogram.bucket(1.0)] == 1
    assert (sum(nine.reads), sum(nine.writes), nine.failed) == (0, 0, 0)


async def test_a_minute_that_is_written_again_is_not_counted_twice(service: Service):
    manual_clock = ManualClock(AT + 3 * HOUR)
    recorder = LatencyRecorder(service.database, manual_clock)
    for _ in range(3):
        recorder.answered(False, 0.001, 200)
        await recorder.flush()
    await recorder.flush()
    manual_clock.now += timedelta(minutes=1)
    await recorder.flush()  # the minute before has ended
    recorder.answered(False, 0.001, 200)
    await recorder.flush()
    [eleven] = await hours(service, EIGHT + 3 * HOUR, 1)
    assert sum(eleven.reads) == 4


async def test_counts_older_than_two_days_are_deleted(service: Service):
    manual_clock = ManualClock(AT + 6 * HOUR)
    recorder = LatencyRecorder(service.database, manual_clock)
    recorder.answered(False, 0.001, 200)
    await recorder.flush()
    manual_clock.now += timedelta(days=2, minutes=1)
    for _ in range(2):  # the sweep comes with the first minute that ends
        recorder.answered(False, 0.001, 200)
        await recorder.flush()
        manual_clock.now += timedelta(minutes=1)
    [then] = await hours(service, EIGHT + 6 * HOUR, 1)
    assert sum(then.reads) == 0


async def test_calls_that_were_answered_are_counted_and_refused_ones_are_not(service: Service, database_url: str):
    this_hour = clock.now().replace(minute=0, second=0, microsecond=0)
    async with (
        running_service(database_url, worker=False) as mine,
        mine.client(await mine.tenant(balance="9")) as client,
    ):
        assert (await client.post("/health")).code == "000000"
        assert (await client.post("/esim/query", {"orderNo": "D261120081530000001"})).code != "000000"
        assert (await client.order()).code == "000000"
    counted = await hours(service, this_hour, 2)  # it has written what it counted before it ended
    assert (sum(sum(one.reads) for one in counted), sum(sum(one.writes) for one in counted)) == (1, 1)
