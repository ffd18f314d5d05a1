"""What does a supplier that cannot be asked stop? The packages on sale that go to it first, by the index of routes and
the sums of days."""

from collections.abc import Sequence
from datetime import date

from dealer_server.db.connection import Connection
from dealer_server.rules.incidents.impact import Impact

OTHER_SUPPLIER = """
EXISTS (SELECT FROM route o JOIN supplier s ON s.code = o.supplier LEFT JOIN supplier_health h ON h.code = s.code
    WHERE o.package_code = {package_code} AND o.position > 0 AND s.status = 'ACTIVE' AND h.up IS NOT FALSE)
"""
"""Whether a package has a supplier after its first one that is neither down nor paused."""
IMPACTS = f"""
WITH first AS MATERIALIZED (
    SELECT r.supplier, r.package_code, NOT {OTHER_SUPPLIER.format(package_code="r.package_code")} AS alone
    FROM route r JOIN package p USING (package_code)
    WHERE r.supplier = ANY($1::text[]) AND r.position = 0 AND p.document ->> 'status' = 'ON_SALE'
), sales AS MATERIALIZED (
    SELECT package_code, sum(sold) AS sold FROM report_all
    WHERE day >= $2 AND package_code IN (SELECT package_code FROM first) GROUP BY package_code
)
SELECT supplier, count(*)::int AS packages, (count(*) FILTER (WHERE alone))::int AS alone,
    coalesce(sum(sold), 0)::bigint AS sold
FROM first LEFT JOIN sales USING (package_code) GROUP BY supplier
"""


async def impacts(connection: Connection, suppliers: Sequence[str], since: date) -> dict[str, Impact]:
    """Of those of these suppliers to which any package goes first. Sales are those since that day."""
    rows = await connection.fetch(IMPACTS, suppliers, since)
    return {row["supplier"]: Impact(row["packages"], row["alone"], row["sold"]) for row in rows}
