-- A11: statuses are legal and follow from the profiles

-- Fault: the statuses of the order or of a line do not follow from its profiles
WITH line AS (
    SELECT tenant_id, order_id, line, kinds, item_status, CASE
            WHEN kinds = {refunded} THEN 'REFUNDED'
            WHEN kinds & {live} = 0 THEN item_status
            WHEN kinds & {live} = {failed} THEN 'FAILED'
            WHEN kinds & {live} = {waiting} AND item_status = 'PAID' THEN 'PAID'
            WHEN kinds & {lacking} <> 0 THEN 'PENDING'
            WHEN kinds & {in_use} = {activated} THEN 'ACTIVATED'
            WHEN kinds & {in_use} = 0 AND item_status IN ('ACTIVATING', 'ACTIVATED') THEN item_status
            WHEN kinds & ({activating} | {activated}) <> 0 OR item_status IN ('ACTIVATING', 'ACTIVATED')
                THEN 'ACTIVATING'
            ELSE 'DELIVERED' END AS settles_as
    FROM order_item JOIN
        (SELECT tenant_id, order_id, line, bit_or({kind}) AS kinds FROM profile GROUP BY tenant_id, order_id, line) p
        USING (tenant_id, order_id, line)
), lines AS (
    SELECT tenant_id, order_id, bit_or(kinds) AS kinds, bool_or(settles_as <> 'PAID') AS begun,
        min(line) FILTER (
            WHERE item_status <> settles_as OR (item_status = 'REFUNDED' AND kinds <> {refunded})) AS unsettled_line
    FROM line GROUP BY tenant_id, order_id
), settled AS (
    SELECT tenant_id, order_id, order_status, kinds, unsettled_line, CASE
            WHEN order_status = 'REFUNDED' OR kinds = {refunded} THEN 'REFUNDED'
            WHEN kinds & {held} <> 0 THEN 'REFUNDING'
            WHEN kinds & {lacking} = 0 THEN 'COMPLETED'
            WHEN order_status <> 'PAID' OR begun THEN 'FULFILLING'
            ELSE 'PAID' END AS settles_as
    FROM orders JOIN lines USING (tenant_id, order_id)
)
SELECT tenant_id, order_id, order_status, settles_as, unsettled_line FROM settled
WHERE order_status <> settles_as OR (order_status = 'REFUNDED' AND kinds <> {refunded})
    OR unsettled_line IS NOT NULL;

-- Fault: the order's payStatus does not follow from its refunds
SELECT tenant_id, order_id, pay_status, order_status, amount, refund_amount FROM orders
WHERE (pay_status = 'REFUNDED' AND refund_amount <> amount)
    OR (pay_status <> 'REFUNDED' AND amount > 0 AND (refund_amount = amount OR order_status = 'REFUNDED'));

-- Fault: the profile's states contradict each other
SELECT tenant_id, order_id, profile_id, lifecycle_status, plan_use_status, failed, refunded, activated,
    cancelled, iccid IS NOT NULL AS has_iccid, activation_code IS NOT NULL AS has_activation_code,
    qr_token IS NOT NULL AS has_qr_token
FROM profile
WHERE cancelled <> (lifecycle_status = 'CANCELLED')
    OR (lifecycle_status <> 'CANCELLED' AND (iccid IS NULL AND plan_mode IS NULL) <> (lifecycle_status = 'PENDING'))
    OR (iccid IS NULL) <> (activation_code IS NULL) OR (iccid IS NULL) <> (qr_token IS NULL)
    OR (activated AND lifecycle_status NOT IN ('ACTIVATED', 'CANCELLED'))
    OR (NOT activated AND lifecycle_status = 'ACTIVATED')
    OR (refunded AND NOT cancelled)
    OR ((iccid IS NOT NULL OR plan_mode IS NOT NULL) AND failed)
    OR (iccid IS NULL AND plan_use_status <> 'NOT_STARTED');
