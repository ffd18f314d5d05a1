-- A12: a transactionId is used once by a tenant

-- Fault: orders share a transactionId
-- The text is computed, so that the table is read and not the index whose promise is checked.
SELECT tenant_id, transaction_id || '' AS transaction_id, count(*) AS orders, min(order_id) AS order_id
FROM orders GROUP BY tenant_id, transaction_id || '' HAVING count(*) > 1;
