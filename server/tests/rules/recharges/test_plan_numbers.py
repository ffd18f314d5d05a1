"""Are the plans of an eSIM counted without gaps, whatever else is decided beside its recharges? (specification 4.14)"""

from datetime import UTC, datetime
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import order
from dealer_server.rules.orders.order import ExistingOrder, NextPlan, OrderRequest, Placed
from dealer_server.rules.orders.priced_lines import OrderLine
from dealer_server.rules.refusal import StatusForbids

TENANT_ID, PRICE = 10001, 12_000
NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)


def recharge(transaction_id: str, esim: int, price: int, plans: int) -> OrderRequest:
    line = OrderLine("TEST-TOPUP-OK", 1, 1, price, "simulated")
    added = NextPlan(esim, plans + 1, order_id=1, version=1)
    return OrderRequest(TENANT_ID, transaction_id, b"1", "USD", price, (line,), recharge=added)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["known", "new-1", "new-2", "other"]), st.sampled_from([7, 8]), st.sampled_from([1, 100])
        ),
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_repeats_and_refused_recharges_take_no_number(calls: list[tuple[str, int, int]], plans: int):
    batch = [recharge(f"{name}", esim, PRICE * times, plans) for name, esim, times in calls]
    ids = count(1)
    decisions = order.decide(
        batch,
        {TENANT_ID: Wallet(TENANT_ID, "USD", 5 * PRICE, 0, 1, frozen=False)},
        {(TENANT_ID, "known"): ExistingOrder(1, b"1")},
        {},
        lambda _: (next(ids), 1),
        NOW,
    )
    added = [placed.request.recharge for placed in order.placements(decisions) if placed.request.recharge]
    for esim in (7, 8):
        numbers = [plan.plan_no for plan in added if plan.profile_id == esim]
        assert numbers == list(range(plans + 1, plans + 1 + len(numbers)))


@given(st.integers(1, 8), st.integers(90, 100))
def test_no_batch_gives_an_esim_more_than_100_plans(recharges: int, plans: int):
    batch = [recharge(f"t-{number}", 7, PRICE, plans) for number in range(recharges)]
    ids = count(1)
    decisions = order.decide(batch, None, {}, {}, lambda _: (next(ids), 1), NOW)
    room = min(recharges, 100 - plans)
    assert all(isinstance(one, Placed) for one in decisions[:room])
    for refused in decisions[room:]:
        assert isinstance(refused, StatusForbids) and refused.data["reason"] == "TOO_MANY_PLANS"
