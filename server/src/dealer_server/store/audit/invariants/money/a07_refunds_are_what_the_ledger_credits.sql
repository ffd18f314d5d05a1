-- A7: what is refunded stays within the amount and is what the ledger credits

-- Fault: refund_amount is outside of 0 to amount
SELECT tenant_id, order_id, amount, refund_amount FROM orders WHERE refund_amount NOT BETWEEN 0 AND amount;

-- Fault: the refund entries are not what the orders were refunded
SELECT tenant_id, coalesce(e.total, 0) AS entries_total, coalesce(o.total, 0) AS orders_total
FROM (SELECT tenant_id, sum(amount) AS total FROM ledger_entry WHERE entry_type = 'REFUND' GROUP BY tenant_id) e
FULL JOIN (SELECT tenant_id, sum(refund_amount) AS total FROM orders GROUP BY tenant_id) o USING (tenant_id)
WHERE coalesce(e.total, 0) <> coalesce(o.total, 0);

-- Fault: the refund's credit is not what its profiles came to, or not what the ledger says
SELECT tenant_id, order_id, refund_id, status, credited, coalesce(l.total, 0) AS lines_total, e.amount AS entry
FROM refund LEFT JOIN
    (SELECT tenant_id, refund_id, sum(amount) AS total FROM refund_line WHERE status = 'COMPLETED'
    GROUP BY tenant_id, refund_id) l USING (tenant_id, refund_id)
LEFT JOIN (SELECT tenant_id, reference AS refund_id, amount FROM ledger_entry WHERE entry_type = 'REFUND') e
    USING (tenant_id, refund_id)
WHERE credited <> coalesce(l.total, 0) OR (status = 'REFUNDED') <> (e.amount IS NOT NULL)
    OR credited <> coalesce(e.amount, 0);

-- Fault: the order was refunded another amount than its refunds credited
SELECT tenant_id, order_id, refund_amount, coalesce(r.total, 0) AS credited FROM orders LEFT JOIN
    (SELECT tenant_id, order_id, sum(credited) AS total FROM refund GROUP BY tenant_id, order_id) r
    USING (tenant_id, order_id)
WHERE refund_amount <> coalesce(r.total, 0);
