-- A9: a profile is in one line, one order, one tenant; live ones have an iccid and a stock code of their own

-- Fault: the profile is outside of its line's profileIds
SELECT tenant_id, order_id, line, profile_id, first_profile_id, quantity
FROM profile JOIN order_item USING (tenant_id, order_id, line)
WHERE profile_id NOT BETWEEN first_profile_id AND first_profile_id + quantity - 1;

-- Fault: the line's profileIds overlap another line's
SELECT * FROM (
    SELECT tenant_id, order_id, line, first_profile_id, quantity, max(first_profile_id + quantity)
        OVER (ORDER BY first_profile_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS free_from
    FROM order_item) i
WHERE first_profile_id < free_from;

-- Fault: profiles share an iccid that was not sold again, or live ones of one dealer do
WITH shared AS (
    SELECT iccid FROM profile WHERE iccid IS NOT NULL AND NOT refunded GROUP BY iccid HAVING count(*) > 1
), one AS (
    SELECT p.*, {over} AS over, EXISTS (SELECT FROM purchase b WHERE b.tenant_id = p.tenant_id
        AND b.profile_id = p.profile_id AND b.iccid = p.iccid AND b.state = 'DONE'
        AND b.planned_iccid IS NULL) AS resold
    FROM profile p JOIN shared USING (iccid) WHERE NOT refunded
)
SELECT tenant_id, order_id, profile_id, iccid FROM one WHERE EXISTS (SELECT FROM one other
    WHERE other.iccid = one.iccid AND other.profile_id <> one.profile_id AND NOT (one.resold OR other.resold)
        OR other.iccid = one.iccid AND other.profile_id <> one.profile_id AND NOT (one.over OR other.over)
            AND other.tenant_id = one.tenant_id);

-- Fault: a stock code was taken for a profile that neither has it nor waits for it
SELECT taken_tenant_id AS tenant_id, s.iccid, taken_by AS profile_id, p.iccid AS profile_iccid
FROM stock_profile s LEFT JOIN profile p ON p.tenant_id = s.taken_tenant_id AND p.profile_id = s.taken_by
    LEFT JOIN order_item i USING (tenant_id, order_id, line)
WHERE s.taken_by IS NOT NULL AND s.iccid IS DISTINCT FROM p.iccid
    AND (p.profile_id IS NULL OR p.iccid IS NOT NULL OR p.cancelled OR i.supplier <> '{stock}');

-- Fault: a profile has a stock code that was not taken for it, or should have one
SELECT p.tenant_id, order_id, profile_id, iccid, s.taken_tenant_id, s.taken_by
FROM profile p JOIN stock_profile s USING (iccid)
WHERE NOT refunded AND (s.taken_tenant_id, s.taken_by) IS DISTINCT FROM (p.tenant_id, p.profile_id)
    AND NOT EXISTS (SELECT FROM purchase b WHERE b.tenant_id = p.tenant_id AND b.profile_id = p.profile_id
        AND b.iccid = p.iccid AND b.state = 'DONE')
UNION ALL
SELECT tenant_id, order_id, profile_id, iccid, NULL, NULL
FROM profile p JOIN order_item i USING (tenant_id, order_id, line)
WHERE supplier = '{stock}' AND iccid IS NOT NULL
    AND NOT EXISTS (SELECT FROM stock_profile s WHERE s.iccid = p.iccid);
