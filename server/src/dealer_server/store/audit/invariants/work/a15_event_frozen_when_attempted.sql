-- A15: hints and body are frozen when attempted, and tell of the event's own version

-- Fault: the delivery was attempted before it was frozen, or tells of another state of the order than its own
SELECT tenant_id, order_id, delivery_id, event_type, d.attempt_count, d.body IS NOT NULL AS has_body, d.hints,
    d.order_version, o.version
FROM webhook_delivery d JOIN orders o USING (tenant_id, order_id)
WHERE (attempt_count > 0 AND body IS NULL) OR (body IS NOT NULL AND hints IS NULL) OR order_version > o.version
    OR (event_type = 'ORDER_PAID' AND (order_version <> 1 OR hints <> '{ORDER_PAID}'));
