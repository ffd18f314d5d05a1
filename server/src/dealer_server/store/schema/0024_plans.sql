-- The plans of an eSIM that was recharged, the one it was sold with among them, in the order in which they begin
-- (AppliedPlan in rules/orders/model.py). They take the place of what profile_life said of recharges.
ALTER TABLE profile ADD COLUMN plans jsonb;

UPDATE profile e SET plans = jsonb_build_array(jsonb_build_object('plan_no', 1, 'mode', NULL, 'order_id', e.order_id,
        'package_code', sold.package_code, 'data_bytes', e.data_total_bytes - added.bytes,
        'begun_at', e.plan_use_start_at)) || added.plans
FROM (SELECT r.tenant_id, r.recharges, sum(r.data_total_bytes)::bigint AS bytes,
        jsonb_agg(jsonb_build_object('plan_no', r.plan_no, 'mode', r.plan_mode, 'order_id', r.order_id,
            'package_code', i.package_code, 'data_bytes', r.data_total_bytes, 'applied_at', l.recharged_at,
            'begun_at', CASE WHEN NOT e.cancelled THEN l.recharged_at END) ORDER BY r.plan_no) AS plans
    FROM profile r JOIN order_item i USING (tenant_id, order_id, line)
        JOIN profile e ON e.tenant_id = r.tenant_id AND e.profile_id = r.recharges
        JOIN profile_life l ON l.tenant_id = r.tenant_id AND l.profile_id = r.recharges
    WHERE r.plan_mode IS NOT NULL GROUP BY r.tenant_id, r.recharges) added
    JOIN profile_life l ON l.tenant_id = added.tenant_id AND l.profile_id = added.recharges
    JOIN order_item sold ON sold.tenant_id = l.tenant_id AND sold.order_id = l.order_id AND sold.line = l.line
WHERE e.tenant_id = added.tenant_id AND e.profile_id = added.recharges;

ALTER TABLE profile_life DROP COLUMN added_bytes, DROP COLUMN recharged_at;
