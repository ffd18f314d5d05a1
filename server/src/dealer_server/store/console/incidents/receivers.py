"""Which receivers fail, and how many webhooks has a dealer not heard?"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from dealer_server.db.by_tenant import OF_ALL, of_given_tenant, rows_of
from dealer_server.db.connection import Connection
from dealer_server.rules.incidents.health import (
    COUNTED_HOURS,
    HOUR,
    LOOKED_BACK,
    Hours,
    bad_since,
    is_degraded,
)
from dealer_server.rules.incidents.receiver import COUNTED, TOLD_FROM, Receiver
from dealer_server.rules.webhooks.answers import word
from dealer_server.store.distribution.due import fetch_all
from dealer_server.store.webhooks import answers
from dealer_server.store.webhooks.answers import Answered

_ROWS = rows_of("webhook_endpoint", "e", "tenant_id", others=["last_success_at"])
_FIELDS = f"""
SELECT e.tenant_id, t.name AS dealer, e.state, e.consecutive_failures AS failures, e.last_success_at,
    least(u.total + f.total, {COUNTED})::int AS unheard, least(u.since, f.since) AS unheard_since,
    CASE WHEN e.state = 'ACTIVE' AND u.total > 0 THEN coalesce(e.probe_at, u.next_at) END AS next_at
FROM {{endpoints}} e JOIN tenant t USING (tenant_id) {_ROWS}
CROSS JOIN LATERAL (SELECT count(*) AS total, min(created_at) AS since, min(due_at) AS next_at FROM (
    SELECT created_at, CASE WHEN state = 'RETRY' THEN due_at END AS due_at FROM webhook_delivery d
    WHERE d.tenant_id = e.tenant_id AND d.state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY')
    ORDER BY order_id LIMIT {COUNTED}) d) u
CROSS JOIN LATERAL (SELECT count(*) AS total, min(created_at) AS since FROM (
    SELECT created_at FROM webhook_delivery d WHERE d.tenant_id = e.tenant_id AND d.state = 'FAILED'
    ORDER BY delivery_id DESC LIMIT {COUNTED}) d WHERE e.last_success_at IS NULL OR created_at > e.last_success_at) f
"""
_WORST = _FIELDS.format(
    endpoints="(SELECT e.* FROM webhook_endpoint e JOIN tenant t USING (tenant_id) WHERE t.status = 'ACTIVE'"
    f" AND (e.state = 'DISABLED' OR e.state = 'ACTIVE' AND e.consecutive_failures >= {TOLD_FROM})"
    " ORDER BY e.consecutive_failures DESC, tenant_id LIMIT $1)"
)
_ONE = of_given_tenant(_FIELDS.format(endpoints="(SELECT * FROM webhook_endpoint WHERE tenant_id = $1)"), 1)

CANDIDATES = 100
"""Endpoints with failed attempts in counted hours, of which the newest attempts are counted too."""
_WITH_FAILURES = f"""
SELECT tenant_id FROM webhook_hour WHERE {OF_ALL} hour >= $1 GROUP BY tenant_id
HAVING sum(attempts) FILTER (WHERE error <> '') > 0
ORDER BY coalesce(sum(attempts) FILTER (WHERE error = ''), 0)::float8 / sum(attempts), tenant_id LIMIT {CANDIDATES}
"""
_HOURS = """
SELECT tenant_id, hour, coalesce(sum(attempts) FILTER (WHERE error = ''), 0)::int AS good, sum(attempts)::int AS asked
FROM webhook_hour WHERE tenant_id = ANY($1::bigint[]) AND hour >= $2 GROUP BY tenant_id, hour
"""
_CAUSES = """
SELECT DISTINCT ON (tenant_id) tenant_id, http_status, error FROM webhook_hour
WHERE tenant_id = ANY($1::bigint[]) AND hour >= $2 AND error <> '' GROUP BY tenant_id, http_status, error
ORDER BY tenant_id, sum(attempts) DESC
"""


async def failing(connection: Connection, limit: int) -> list[Receiver]:
    """Of dealers that may call: those with the most failures in a row first."""
    return [Receiver(**row) for row in await connection.fetch(_WORST, limit)]


async def degraded(connection: Connection, since: datetime, now: datetime, limit: int) -> list[Receiver]:
    """Of dealers that may call, whose endpoints answer but did not often enough since an hour: those with the most
    failed attempts first. `cause`: as a filter of answers (rules/webhooks/answers.py)."""
    ids = [row["tenant_id"] for row in await fetch_all(connection, _WITH_FAILURES, since)]
    answered = await answers.of_dealers(connection, ids, since) if ids else {}
    answered = {key: one for key, one in answered.items() if is_degraded(one.accepted, one.attempts)}
    rows = await connection.fetch(
        "SELECT tenant_id, t.name AS dealer, e.state, e.consecutive_failures AS failures, e.last_success_at"
        " FROM webhook_endpoint e JOIN tenant t USING (tenant_id)"
        " WHERE e.tenant_id = ANY($1::bigint[]) AND t.status = 'ACTIVE' AND e.state = 'ACTIVE'"
        f" AND e.consecutive_failures < {TOLD_FROM}",
        list(answered),
    )
    found = [
        Receiver(**row, accepted=answered[row["tenant_id"]].accepted, attempts=answered[row["tenant_id"]].attempts)
        for row in rows
    ]
    worst = sorted(found, key=lambda one: (one.accepted - one.attempts, one.tenant_id))[:limit]
    mostly = await connection.fetch(_CAUSES, [one.tenant_id for one in worst], since)
    causes = {row["tenant_id"]: word(row["http_status"], row["error"]) for row in mostly}
    hours = await _hours(connection, [one.tenant_id for one in worst], now - LOOKED_BACK - COUNTED_HOURS * HOUR)
    return [
        one._replace(cause=causes.get(one.tenant_id, ""), degraded_since=bad_since(hours[one.tenant_id], now))
        for one in worst
    ]


async def _hours(connection: Connection, tenant_ids: Sequence[int], since: datetime) -> Mapping[int, Hours]:
    """The hours that were counted since then, by dealer."""
    found = defaultdict[int, dict[datetime, tuple[int, int]]](dict)
    for row in await connection.fetch(_HOURS, list(tenant_ids), since):
        found[row["tenant_id"]][row["hour"]] = row["good"], row["asked"]
    return found


async def count_failing(connection: Connection) -> int:
    """How many receivers fail or are switched off."""
    count: int | None = await connection.fetchval(
        "SELECT count(*) FROM webhook_endpoint e JOIN tenant t USING (tenant_id) WHERE t.status = 'ACTIVE'"
        f" AND (e.state = 'DISABLED' OR e.state = 'ACTIVE' AND e.consecutive_failures >= {TOLD_FROM})"
    )
    return count or 0


async def of_dealer(
    connection: Connection, tenant_id: int, now: datetime, answered: Answered | None = None
) -> Receiver | None:
    """None where the dealer never set a callback URL. `answered`: how its endpoint answered lately."""
    row = await connection.fetchrow(_ONE, tenant_id)
    if row is None:
        return None
    counted = answered or Answered()
    since = None
    if is_degraded(counted.accepted, counted.attempts):
        hours = await _hours(connection, [tenant_id], now - LOOKED_BACK - COUNTED_HOURS * HOUR)
        since = bad_since(hours[tenant_id], now)
    return Receiver(**row, accepted=counted.accepted, attempts=counted.attempts, degraded_since=since)
