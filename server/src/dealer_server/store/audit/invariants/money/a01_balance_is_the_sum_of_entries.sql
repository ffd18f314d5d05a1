-- A1: a wallet's balance is the sum of its entries

-- Fault: balance is not the sum of the entries
SELECT tenant_id, w.balance, coalesce(o.balance, 0) + coalesce(e.total, 0) AS entries_total
FROM wallet w FULL JOIN (SELECT tenant_id, sum(amount) AS total FROM {entries} e GROUP BY tenant_id) e
    USING (tenant_id) FULL JOIN {opening} o USING (tenant_id)
WHERE w.balance IS DISTINCT FROM coalesce(o.balance, 0) + coalesce(e.total, 0);
