"""The token bucket: what a window of time can see at most, and what a caller is told."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dealer_server.rules.access import rate_limit


def accepted_times(call_times: list[float], calls_per_second: float, burst: float) -> list[float]:
    """The times of the calls that a bucket, full at first, let pass."""
    full_at = 0.0
    accepted = []
    for now in call_times:
        after = rate_limit.spend(full_at, now, calls_per_second, burst)
        if after is not None:
            full_at = after
            accepted.append(now)
    return accepted


def assert_every_window_is_bounded(accepted: list[float], calls_per_second: float, burst: float) -> None:
    times = sorted(accepted)
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= (times[last] - start) * calls_per_second + burst + 2 * rate_limit.ROUNDING


RATES = st.floats(0.1, 500)
BURSTS = st.integers(1, 30)


@given(st.lists(st.floats(0, 0.5), max_size=80), RATES, BURSTS)
@example(gaps=[0.0] * 80, calls_per_second=10, burst=20)
def test_no_window_sees_more_than_rate_times_its_length_and_one_burst(
    gaps: list[float], calls_per_second: float, burst: int
):
    now, call_times = 1000.0, []
    for gap in gaps:
        now += gap
        call_times.append(now)
    assert_every_window_is_bounded(accepted_times(call_times, calls_per_second, burst), calls_per_second, burst)


@given(st.lists(st.floats(0, 60), max_size=60), RATES, BURSTS)
def test_calls_that_come_out_of_order_do_not_widen_the_window(
    call_times: list[float], calls_per_second: float, burst: int
):
    assert_every_window_is_bounded(accepted_times(call_times, calls_per_second, burst), calls_per_second, burst)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), RATES, BURSTS)
def test_a_refused_call_passes_once_it_has_waited_as_long_as_it_was_told(
    gaps: list[float], calls_per_second: float, burst: int
):
    now = full_at = 0.0
    for gap in gaps:
        now += gap
        after = rate_limit.spend(full_at, now, calls_per_second, burst)
        if after is None:
            wait = rate_limit.wait_seconds(full_at, now, calls_per_second, burst)
            assert wait > 0
            assert rate_limit.spend(full_at, now + wait, calls_per_second, burst) is not None
        else:
            full_at = after


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), RATES, BURSTS)
def test_remaining_is_the_number_of_calls_that_pass_at_once(gaps: list[float], calls_per_second: float, burst: int):
    now = full_at = 0.0
    for gap in gaps:
        now += gap
        full_at = rate_limit.spend(full_at, now, calls_per_second, burst) or full_at
    debt = rate_limit.debt_seconds(full_at, now, calls_per_second, burst)
    remaining = rate_limit.allowed(debt, calls_per_second, burst, 1).remaining
    passed = 0
    while (after := rate_limit.spend(full_at, now, calls_per_second, burst)) is not None:
        full_at = after
        passed += 1
    assert remaining == passed


@pytest.mark.parametrize(
    ("calls", "qps", "remaining", "reset_seconds"),
    [(1, 10, 19, 0.1), (2, 10, 18, 0.2), (20, 10, 0, 2.0), (1, 1, 1, 1.0), (2, 1, 0, 2.0), (2000, 1000, 0, 2.0)],
)
def test_a_burst_is_taken_to_the_last_token(calls: int, qps: int, remaining: int, reset_seconds: float):
    burst = qps * rate_limit.BURST_SECONDS
    full_at = 0.0
    for _ in range(calls):
        full_at = rate_limit.spend(full_at, 50.0, qps, burst)
        assert full_at is not None
    allowance = rate_limit.allowed(full_at - 50.0, qps, burst, qps)
    assert (allowance.allowed, allowance.limit, allowance.remaining) == (True, qps, remaining)
    assert allowance.reset_seconds == pytest.approx(reset_seconds)
    assert allowance.retry_after_seconds == 0


def test_an_empty_bucket_refuses_and_says_when_to_come_back():
    full_at = 52.0  # ten a second, twenty in the bucket, all twenty taken at 50.0
    assert rate_limit.spend(full_at, 50.0, 10, 20) is None
    allowance = rate_limit.refused(rate_limit.debt_seconds(full_at, 50.0, 10, 20), 10, 20, 10)
    assert (allowance.allowed, allowance.remaining) == (False, 0)
    assert allowance.reset_seconds == pytest.approx(2.0)
    assert allowance.retry_after_seconds == pytest.approx(0.1)
    assert rate_limit.spend(full_at, 50.1, 10, 20) == pytest.approx(52.1)


def test_a_bucket_that_has_been_full_for_long_holds_one_burst_and_no_more():
    assert len(accepted_times([0.0] * 30 + [1e6] * 30, 10, 20)) == 40


def test_a_clock_set_back_by_an_hour_leaves_one_token_and_then_the_usual_rate():
    full_at = rate_limit.spend(0.0, 7200.0, 10, 20)
    for now in (3600.0, 3600.1, 3600.2):
        assert full_at is not None
        full_at = rate_limit.spend(full_at, now, 10, 20)
        assert full_at is not None
        assert rate_limit.spend(full_at, now, 10, 20) is None
