-- A22: wallets count their orders and profiles

-- Fault: the wallet does not count the orders and profiles bought
SELECT * FROM (
    SELECT tenant_id, order_count, coalesce(b.orders, 0) + coalesce(o.orders, 0) AS orders, profile_count,
        coalesce(b.profiles, 0) + coalesce(p.profiles, 0) AS profiles
    FROM wallet LEFT JOIN {opening} b USING (tenant_id)
        LEFT JOIN (SELECT tenant_id, count(*) AS orders FROM orders GROUP BY tenant_id) o USING (tenant_id)
        LEFT JOIN (SELECT tenant_id, count(*) AS profiles FROM profile WHERE recharges IS NULL
            GROUP BY tenant_id) p USING (tenant_id)) w
WHERE order_count <> orders OR profile_count <> profiles;
