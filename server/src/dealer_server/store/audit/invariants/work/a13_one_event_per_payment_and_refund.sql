-- A13: each order has one ORDER_PAID, each credited refund one REFUND_COMPLETED

-- Fault: the order has not one ORDER_PAID
SELECT tenant_id, order_id, coalesce(d.events, 0) AS events FROM orders LEFT JOIN
    (SELECT tenant_id, order_id, count(*) AS events FROM webhook_delivery
    WHERE event_type = 'ORDER_PAID' AND trigger <> 'TEST' GROUP BY tenant_id, order_id) d
    USING (tenant_id, order_id)
WHERE d.events IS DISTINCT FROM 1;

-- Fault: the order has not one REFUND_COMPLETED for each credited refund
SELECT tenant_id, order_id, coalesce(r.refunds, 0) AS refunds, coalesce(d.events, 0) AS events
FROM (SELECT tenant_id, order_id, count(*) AS refunds FROM refund WHERE status = 'REFUNDED'
    GROUP BY tenant_id, order_id) r
FULL JOIN (SELECT tenant_id, order_id, count(*) AS events FROM webhook_delivery
    WHERE event_type = 'REFUND_COMPLETED' AND trigger <> 'TEST' GROUP BY tenant_id, order_id) d
    USING (tenant_id, order_id)
WHERE coalesce(r.refunds, 0) <> coalesce(d.events, 0);
