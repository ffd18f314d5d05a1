-- A27: values of a row are known ones and fit together

-- Fault: the order has an unknown status
SELECT tenant_id, order_id, order_status, pay_status, delivery_status FROM orders
WHERE order_status NOT IN ('PAID', 'FULFILLING', 'COMPLETED', 'REFUNDING', 'REFUNDED')
    OR pay_status NOT IN ('PAID', 'REFUNDED')
    OR delivery_status NOT IN ('PENDING', 'PARTIAL', 'DELIVERED', 'FAILED');

-- Fault: the ledger entry is of an unknown type
SELECT tenant_id, version, entry_type FROM ledger_entry
WHERE entry_type NOT IN ('ORDER_PAY', 'REFUND', 'TOPUP', 'ADJUST');

-- Fault: the line has an unknown status or an impossible number
SELECT tenant_id, order_id, line, item_status, quantity, period_num, price FROM order_item
WHERE line NOT BETWEEN 0 AND 99 OR quantity NOT BETWEEN 1 AND 100 OR period_num < 1 OR price < 0
    OR item_status NOT IN ('PAID', 'PENDING', 'DELIVERED', 'ACTIVATING', 'ACTIVATED', 'FAILED', 'REFUNDED');

-- Fault: the profile has an unknown status, or values that do not go together
SELECT tenant_id, order_id, profile_id, lifecycle_status, plan_use_status, plan_mode, plan_no, recharges, held, refunded,
    suspended, suspended_at, data_usage_bytes, iccid IS NOT NULL AS has_iccid
FROM profile
WHERE lifecycle_status NOT IN ('PENDING', 'DELIVERED', 'ACTIVATING', 'ACTIVATED', 'CANCELLED')
    OR plan_use_status NOT IN ('NOT_STARTED', 'STARTED', 'ENDED') OR plan_mode NOT IN ('ADD', 'QUEUE')
    OR CASE WHEN recharges IS NULL THEN plan_no <> 1 OR plan_mode IS NOT NULL ELSE plan_no <= 1 OR iccid IS NOT NULL END
    OR (held AND refunded) OR (suspended_at IS NOT NULL AND NOT suspended) OR data_usage_bytes < 0;

-- Fault: the delivery has an unknown state, or values that do not go with its state
SELECT tenant_id, order_id, delivery_id, event_type, state, trigger, due_at, claim, delivered_at, attempt_count
FROM webhook_delivery
WHERE event_type NOT IN ('ORDER_PAID', 'DELIVERY_UPDATED', 'REFUND_COMPLETED', 'RT_ORDER_STATUS', 'RT_SMDP_EVENT',
        'RT_ESIM_STATUS', 'RT_DATA_USAGE', 'RT_VALIDITY_USAGE')
    OR state NOT IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY', 'DELIVERED', 'FAILED', 'SUPERSEDED', 'SKIPPED')
    OR trigger NOT IN ('AUTO', 'RESEND', 'SYNC', 'TEST')
    OR (due_at IS NOT NULL) <> (state IN ('READY', 'RETRY', 'IN_FLIGHT'))
    OR (claim IS NOT NULL) <> (state = 'IN_FLIGHT') OR (state = 'DELIVERED' AND delivered_at IS NULL);
