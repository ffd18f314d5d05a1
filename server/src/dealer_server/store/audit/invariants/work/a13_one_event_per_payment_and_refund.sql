-- A13: each order has one ORDER_PAID, each credited refund one REFUND_COMPLETED
-- Unless it was deleted for its age. An order is as old as its ORDER_PAID, within a minute, and so is a settled refund.

-- Fault: the order has not one ORDER_PAID
SELECT tenant_id, order_id, coalesce(d.events, 0) AS events FROM orders LEFT JOIN
    (SELECT tenant_id, order_id, count(*) AS events FROM webhook_delivery
    WHERE event_type = 'ORDER_PAID' AND trigger <> 'TEST' GROUP BY tenant_id, order_id) d
    USING (tenant_id, order_id)
WHERE d.events IS DISTINCT FROM 1 AND (d.events IS NOT NULL OR order_id >=
    (extract(epoch FROM {deliveries_from} + interval '1 minute')::bigint - {epoch_seconds}) * {sequence});

-- Fault: the order has not one REFUND_COMPLETED for each credited refund
SELECT tenant_id, order_id, coalesce(r.refunds, 0) AS refunds, coalesce(d.events, 0) AS events
FROM (SELECT tenant_id, order_id, count(*) AS refunds,
        count(*) FILTER (WHERE settled_at >= {deliveries_from} + interval '1 minute') AS kept
    FROM refund WHERE status = 'REFUNDED' GROUP BY tenant_id, order_id) r
FULL JOIN (SELECT tenant_id, order_id, count(*) AS events,
        count(*) FILTER (WHERE created_at >= {deliveries_from}) AS kept
    FROM webhook_delivery WHERE event_type = 'REFUND_COMPLETED' AND trigger <> 'TEST' GROUP BY tenant_id, order_id) d
    USING (tenant_id, order_id)
WHERE coalesce(d.events, 0) > coalesce(r.refunds, 0) OR coalesce(d.kept, 0) < coalesce(r.kept, 0);
