-- A22: wallets count their orders and profiles

-- Fault: the wallet does not count the orders and profiles bought
SELECT tenant_id, order_count, coalesce(orders, 0) AS orders, profile_count, coalesce(profiles, 0) AS profiles
FROM wallet LEFT JOIN (SELECT tenant_id, count(*) AS orders FROM orders GROUP BY tenant_id) o USING (tenant_id)
    LEFT JOIN (SELECT tenant_id, count(*) AS profiles FROM profile GROUP BY tenant_id) p USING (tenant_id)
WHERE order_count <> coalesce(orders, 0) OR profile_count <> coalesce(profiles, 0);
