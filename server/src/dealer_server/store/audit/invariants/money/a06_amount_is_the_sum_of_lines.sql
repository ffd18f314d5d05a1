-- A6: an order's amount is the sum of price x quantity x periodNum

-- Fault: amount is not the sum of price x quantity x periodNum
SELECT tenant_id, order_id, o.amount, i.total AS lines_total
FROM orders o LEFT JOIN
    (SELECT tenant_id, order_id, sum(price * (quantity * period_num::numeric)) AS total
    FROM order_item GROUP BY tenant_id, order_id) i USING (tenant_id, order_id)
WHERE o.amount IS DISTINCT FROM i.total;
