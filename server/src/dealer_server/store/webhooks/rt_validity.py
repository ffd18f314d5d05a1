"""Which plans in use end soon, of dealers who get the RT family's events? Until which end was looked?"""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.session import Session

AT_ONCE = 500  # more where several end at the same moment


class Ending(NamedTuple):
    tenant_id: int
    order_id: int
    profile_id: int
    ends_at: datetime


async def lock(session: Session) -> datetime | None:
    """Until which end plans were told of; None while another worker looks."""
    rows = await session.fetch("SELECT told_until FROM rt_validity FOR UPDATE SKIP LOCKED")
    return rows[0]["told_until"] if rows else None


# A queued plan that follows moves the end; it is told of when it is the last.
_ENDING = f"""
SELECT p.tenant_id, p.order_id, p.profile_id, p.plan_use_end_at AS ends_at
FROM profile p CROSS JOIN LATERAL (SELECT FROM webhook_endpoint e
    WHERE e.tenant_id = p.tenant_id AND e.rt_state = 'ACTIVE' OFFSET 0) e
WHERE p.plan_use_status = 'STARTED' AND p.plan_use_end_at IS NOT NULL
    AND p.plan_use_end_at > $1 AND p.plan_use_end_at <= $2 AND p.iccid IS NOT NULL AND NOT p.cancelled
    AND NOT EXISTS (SELECT FROM jsonb_array_elements(p.plans) plan
        WHERE plan ->> 'mode' = 'QUEUE' AND plan ->> 'begun_at' IS NULL AND plan ->> 'cancelled' IS NULL)
ORDER BY p.plan_use_end_at FETCH FIRST {AT_ONCE} ROWS WITH TIES
"""


async def ending(session: Session, after: datetime, until: datetime) -> list[Ending]:
    """Plans in use that end then, and that no other follows; the next ones where there are many."""
    return [Ending(**row) for row in await session.fetch(_ENDING, after, until)]


async def move(session: Session, until: datetime) -> None:
    await session.fetch("UPDATE rt_validity SET told_until = $1", until)
