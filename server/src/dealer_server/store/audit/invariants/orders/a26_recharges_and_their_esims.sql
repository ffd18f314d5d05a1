-- A26: a recharge is one plan of a delivered eSIM of its tenant, and an eSIM has what its recharges added

-- Fault: the recharge names no eSIM of its tenant that was delivered
SELECT tenant_id, order_id, profile_id, recharges FROM profile r
WHERE recharges IS NOT NULL AND NOT EXISTS (SELECT FROM profile e
    WHERE e.tenant_id = r.tenant_id AND e.profile_id = r.recharges AND e.recharges IS NULL AND e.iccid IS NOT NULL);

-- Fault: the line and its profile name different eSIMs, or not the eSIM's order
SELECT p.tenant_id, p.order_id, p.line, p.profile_id, p.recharges, i.recharges AS recharged_by_line, i.recharges_order_id
FROM profile p JOIN order_item i USING (tenant_id, order_id, line)
    LEFT JOIN profile e ON e.tenant_id = p.tenant_id AND e.profile_id = p.recharges
WHERE p.recharges IS DISTINCT FROM i.recharges OR e.order_id IS DISTINCT FROM i.recharges_order_id;

-- Fault: the plans of the eSIM are not numbered without a gap
SELECT * FROM (
    SELECT tenant_id, recharges AS profile_id, count(*) AS recharges, min(plan_no) AS first, max(plan_no) AS last
    FROM profile WHERE recharges IS NOT NULL GROUP BY tenant_id, recharges) plans
WHERE first <> 2 OR last <> recharges + 1;

-- Fault: the eSIM's plans are not those that its recharges added
SELECT e.tenant_id, e.order_id, e.profile_id, e.plans, applied.plans AS applied
FROM profile e LEFT JOIN (
    SELECT tenant_id, recharges AS profile_id, jsonb_agg(jsonb_build_array(plan_no, plan_mode, order_id,
        data_total_bytes, held, plan_mode = 'QUEUE' AND refunded) ORDER BY plan_no) AS plans
    FROM profile WHERE plan_mode IS NOT NULL GROUP BY tenant_id, recharges) applied USING (tenant_id, profile_id)
WHERE (e.plans IS NOT NULL OR applied.plans IS NOT NULL) AND (applied.plans IS DISTINCT FROM (
    SELECT jsonb_agg(jsonb_build_array(plan -> 'plan_no', plan -> 'mode', plan -> 'order_id',
        coalesce(plan -> 'data_bytes', 'null'), coalesce(plan -> 'held', 'false'),
        coalesce(plan -> 'cancelled', 'false')) ORDER BY (plan ->> 'plan_no')::int)
    FROM jsonb_array_elements(e.plans) plan WHERE plan ->> 'plan_no' <> '1')
    OR e.plans -> 0 ->> 'plan_no' IS DISTINCT FROM '1');
