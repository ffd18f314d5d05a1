-- A25: nothing is dated in the future, or due later than any schedule sets it
-- A process with a wrong clock leaves such rows, and nothing works on them until their time has come.

-- Fault: the order is of the future
SELECT tenant_id, order_id, updated_at FROM orders
WHERE order_id >= (extract(epoch FROM $2::timestamptz + interval '1 minute')::bigint - {epoch_seconds})
    * {sequence} OR updated_at > $2 + interval '1 minute';

-- Fault: the entry is of the future
SELECT tenant_id, version, entry_type, created_at FROM ledger_entry
WHERE created_at > $2::timestamptz + interval '1 minute';

-- Fault: the line is due later than the first time is at once, and every other within the hour
SELECT tenant_id, order_id, line, supplier, due_at, claims FROM order_item
WHERE due_at > $2::timestamptz + CASE WHEN claim IS NULL THEN interval '1 minute' ELSE interval '61 minutes' END;

-- Fault: the purchase is due later than its longest wait
SELECT tenant_id, order_id, line, profile_id, supplier, state, due_at, calls FROM purchase
WHERE due_at > $2::timestamptz + interval '15 minutes';

-- Fault: the refund, the void or the suspension is due later than its longest wait
SELECT tenant_id, order_id, refund_id, NULL::bigint AS profile_id, due_at FROM refund
WHERE due_at > $2::timestamptz + interval '15 minutes'
UNION ALL
SELECT tenant_id, order_id, refund_id, profile_id, due_at FROM void_request
WHERE due_at > $2::timestamptz + interval '61 minutes'
UNION ALL
SELECT tenant_id, order_id, NULL, profile_id, due_at FROM suspension
WHERE due_at > $2::timestamptz + interval '61 minutes';

-- Fault: the delivery is due later than its first attempt or its lease can be
-- READY: spread over a minute at most, or held back for usage alone. How long a RETRY waits is a setting.
SELECT tenant_id, order_id, delivery_id, event_type, state, due_at, not_before FROM webhook_delivery
WHERE (state = 'IN_FLIGHT' OR (state = 'READY' AND due_at IS DISTINCT FROM not_before))
    AND due_at > $2::timestamptz + interval '2 minutes';

-- Fault: what is younger than any retention may have been deleted for its age
-- The shortest is 30 days (settings.py).
SELECT NULL::bigint AS tenant_id, kind, deleted_before FROM retention
WHERE deleted_before > greatest($2::timestamptz, now()) - interval '29 days';
