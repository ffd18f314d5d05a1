-- A16: no work without its subject, no subject without its work, none past its time

-- Fault: the line is due although no profile of it waits
SELECT tenant_id, order_id, line, due_at FROM order_item i
WHERE due_at IS NOT NULL AND NOT EXISTS (
    SELECT FROM profile p WHERE p.tenant_id = i.tenant_id AND p.order_id = i.order_id AND p.line = i.line
        AND {waits});

-- Fault: the profile waits although its line is not due
SELECT tenant_id, order_id, line, profile_id FROM profile JOIN order_item USING (tenant_id, order_id, line)
WHERE {waits} AND due_at IS NULL AND NOT EXISTS (
    SELECT FROM purchase p WHERE p.tenant_id = profile.tenant_id AND p.profile_id = profile.profile_id
        AND p.state IN ('PLANNED', 'SENT', 'PENDING', 'UNKNOWN', 'PARKED'));

-- Fault: the purchase is due since long
SELECT tenant_id, order_id, line, profile_id, supplier, state, due_at, calls FROM purchase
WHERE due_at < $2::timestamptz - interval '15 minutes';

-- Fault: the line is due since long
SELECT tenant_id, order_id, line, supplier, due_at, claims FROM order_item
WHERE due_at < $2::timestamptz - interval '15 minutes';

-- Fault: the refund is due since long, cannot be settled, or waits for nobody's word
SELECT tenant_id, order_id, refund_id, due_at FROM refund r
WHERE due_at < $2::timestamptz - interval '15 minutes'
    OR (status = 'REFUNDING' AND settle_failures > 5) OR (status = 'REFUNDING' AND due_at IS NULL
    AND NOT EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id
        AND l.status = 'PENDING'));

-- Fault: the refund waits for a supplier that nobody asks
SELECT l.tenant_id, order_id, refund_id, profile_id
FROM refund_line l JOIN refund r USING (tenant_id, refund_id)
WHERE l.status = 'PENDING' AND way = 'SUPPLIER' AND NOT EXISTS (SELECT FROM void_request v
    WHERE v.tenant_id = l.tenant_id AND v.profile_id = l.profile_id AND v.refund_id = l.refund_id
        AND v.outcome IS NULL);

-- Fault: the delivery waits behind none of its order
SELECT tenant_id, order_id, delivery_id, event_type, created_at
FROM webhook_delivery d JOIN webhook_endpoint e USING (tenant_id)
WHERE d.state = 'WAITING'
    AND CASE WHEN starts_with(d.event_type, 'RT_') THEN e.rt_state ELSE e.state END = 'ACTIVE' AND NOT EXISTS (
    SELECT FROM webhook_delivery head WHERE head.tenant_id = d.tenant_id AND head.order_id = d.order_id
        AND head.state IN ('READY', 'RETRY', 'IN_FLIGHT'));

-- Fault: the life is due since long
SELECT tenant_id, order_id, line, profile_id, supplier, due_at, claims FROM profile_life
WHERE due_at < $2::timestamptz - interval '1 hour';
