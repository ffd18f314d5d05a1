-- A14: at most 8 automatic attempts, numbered without gap; DELIVERED has a 2xx; none in flight past its lease
-- Attempts of a delivery may be missing, from its first one on, where it is older than what is deleted for its age.

-- Fault: the delivery's attempts are too many, not numbered without gap, or none explains that it is DELIVERED
SELECT tenant_id, order_id, delivery_id, event_type, trigger, state, attempt_count, attempts, first, last,
    accepted
FROM webhook_delivery FULL JOIN
    (SELECT tenant_id, delivery_id, count(*) AS attempts, min(number) AS first, max(number) AS last,
        coalesce(bool_or(http_status BETWEEN 200 AND 299), false) AS accepted
    FROM webhook_attempt GROUP BY tenant_id, delivery_id) a USING (tenant_id, delivery_id)
WHERE state IS NULL OR (trigger <> 'RESEND' AND attempt_count > 8)
    OR last - first + 1 <> attempts OR last > attempt_count
    OR (first > 1 AND created_at >= {attempts_from})
    OR (first IS NULL AND attempt_count > 0 AND state <> 'IN_FLIGHT' AND created_at >= {attempts_from})
    OR (state = 'DELIVERED' AND (attempt_count = 0 OR (first = 1 AND NOT accepted)));

-- Fault: the delivery is in flight past its lease
SELECT tenant_id, order_id, delivery_id, event_type, due_at, attempt_count FROM webhook_delivery
WHERE state = 'IN_FLIGHT' AND (due_at IS NULL OR due_at < $2::timestamptz - interval '5 minutes');
