"""Which old deliveries of an order are still needed?"""

from datetime import UTC, datetime, timedelta

import pytest

from dealer_server.rules.retention.retention import PastDelivery, deletable

LIMIT = datetime(2026, 8, 24, tzinfo=UTC)
OLD, YOUNG = LIMIT - timedelta(days=1), LIMIT


def past(
    delivery_id: int,
    state: str,
    event_type: str = "DELIVERY_UPDATED",
    finished_at: datetime | None = OLD,
    **changed: int,
) -> PastDelivery:
    """Of order 1, its id as version; `state` DELIVERED, FAILED (attempted in vain) or SKIPPED (never attempted)."""
    return PastDelivery(
        delivery_id,
        changed.get("order_id", 1),
        event_type,  # type: ignore[arg-type]
        changed.get("order_version", delivery_id),
        state != "SKIPPED",
        state == "DELIVERED",
        finished_at,
    )


@pytest.mark.parametrize(
    ("deliveries", "expected"),
    [
        ([past(1, "DELIVERED", "ORDER_PAID"), past(2, "FAILED", "REFUND_COMPLETED")], [1, 2]),
        ([past(1, "DELIVERED", "ORDER_PAID", None), past(2, "FAILED", "REFUND_COMPLETED", YOUNG)], []),
        ([past(1, "DELIVERED")], []),
        ([past(1, "DELIVERED"), past(2, "DELIVERED")], [1]),
        ([past(1, "DELIVERED"), past(2, "DELIVERED", order_id=2)], []),
        ([past(1, "DELIVERED"), past(2, "DELIVERED", finished_at=YOUNG)], [1]),
        ([past(1, "DELIVERED"), past(2, "SKIPPED")], [2]),
        ([past(1, "DELIVERED", order_version=9), past(2, "DELIVERED")], [2]),
        ([past(1, "DELIVERED"), past(2, "DELIVERED", order_version=1)], [1]),
        # The dealer may have received 3, and 2 if so: that there is one of them is what counts.
        ([past(1, "DELIVERED"), past(2, "FAILED"), past(3, "FAILED")], [2]),
        ([past(1, "DELIVERED"), past(2, "FAILED"), past(3, "DELIVERED")], [1, 2]),
        # There may be a baseline that the sweep has not reached.
        ([past(1, "FAILED"), past(2, "FAILED")], [1]),
    ],
)
def test_what_later_hints_start_from_is_kept(deliveries: list[PastDelivery], expected: list[int]):
    assert sorted(deletable(deliveries, LIMIT)) == expected
    assert sorted(deletable(reversed(deliveries), LIMIT)) == expected
