-- A5: one debit per order, of its amount and currency, and no debit without order

-- Fault: the order has not one debit of its amount, or the debit has no order
SELECT tenant_id, order_id, o.amount, coalesce(e.debits, 0) AS debits, e.debited
FROM orders o FULL JOIN
    (SELECT tenant_id, reference AS order_id, count(*) AS debits, -min(amount) AS debited
    FROM ledger_entry WHERE entry_type = 'ORDER_PAY' GROUP BY tenant_id, reference) e
    USING (tenant_id, order_id)
WHERE e.debits IS DISTINCT FROM 1 OR e.debited IS DISTINCT FROM o.amount;

-- Fault: the order's currency is not the wallet's
SELECT tenant_id, order_id, o.currency, w.currency AS wallet_currency
FROM orders o JOIN wallet w USING (tenant_id) WHERE o.currency <> w.currency;
