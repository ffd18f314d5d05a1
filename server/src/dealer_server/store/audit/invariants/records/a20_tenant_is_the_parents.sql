-- A20: no row's tenant differs from its parent's

-- Fault: a row of orders has none of wallet of its tenant
SELECT tenant_id, c.order_id FROM orders c
WHERE NOT EXISTS (SELECT FROM wallet p WHERE p.tenant_id = c.tenant_id);

-- Fault: a row of order_item has none of orders of its tenant
SELECT tenant_id, c.order_id, c.line FROM order_item c
WHERE NOT EXISTS (SELECT FROM orders p WHERE p.tenant_id = c.tenant_id AND p.order_id = c.order_id);

-- Fault: a row of profile has none of order_item of its tenant
SELECT tenant_id, c.order_id, c.line, c.profile_id FROM profile c
WHERE NOT EXISTS
    (SELECT FROM order_item p WHERE p.tenant_id = c.tenant_id AND p.order_id = c.order_id AND p.line = c.line);

-- Fault: a row of refund has none of orders of its tenant
SELECT tenant_id, c.order_id, c.refund_id FROM refund c
WHERE NOT EXISTS (SELECT FROM orders p WHERE p.tenant_id = c.tenant_id AND p.order_id = c.order_id);

-- Fault: a row of webhook_delivery has none of orders of its tenant
SELECT tenant_id, c.order_id, c.delivery_id, c.event_type FROM webhook_delivery c
WHERE NOT EXISTS (SELECT FROM orders p WHERE p.tenant_id = c.tenant_id AND p.order_id = c.order_id);

-- Fault: a row of ledger_entry has none of wallet of its tenant
SELECT tenant_id, c.version FROM ledger_entry c
WHERE NOT EXISTS (SELECT FROM wallet p WHERE p.tenant_id = c.tenant_id);

-- Fault: a row of profile_life has none of profile of its tenant
SELECT tenant_id, c.order_id, c.line, c.profile_id FROM profile_life c
WHERE NOT EXISTS (SELECT FROM profile p WHERE p.tenant_id = c.tenant_id AND p.profile_id = c.profile_id);

-- Fault: a row of refund_line has no refund of its tenant and of its profile's order
SELECT tenant_id, r.order_id, refund_id, profile_id, p.order_id AS order_of_profile
FROM refund_line LEFT JOIN refund r USING (tenant_id, refund_id)
    LEFT JOIN profile p USING (tenant_id, profile_id)
WHERE r.order_id IS DISTINCT FROM p.order_id OR r.order_id IS NULL;

-- Fault: the order of a debit is another tenant's
SELECT e.tenant_id, e.version, e.reference AS order_id, o.tenant_id AS order_tenant_id
FROM ledger_entry e JOIN orders o ON o.order_id = e.reference
WHERE entry_type = 'ORDER_PAY' AND o.tenant_id <> e.tenant_id;

-- Fault: a stock code was taken for another tenant than the profile's
SELECT p.tenant_id, s.iccid, p.profile_id, s.taken_tenant_id
FROM stock_profile s LEFT JOIN profile p ON p.profile_id = s.taken_by
WHERE s.taken_by IS NOT NULL AND p.tenant_id IS DISTINCT FROM s.taken_tenant_id;
