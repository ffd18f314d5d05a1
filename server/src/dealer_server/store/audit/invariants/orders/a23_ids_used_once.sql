-- A23: no id is used twice, nor will be

-- Fault: an id in use will be handed out again
SELECT tenant_id, kind, last_id, next FROM (
    SELECT tenant_id, 'order' AS kind, max(order_id) AS last_id FROM orders GROUP BY tenant_id
    UNION ALL SELECT tenant_id, 'profile', max(profile_id) FROM profile GROUP BY tenant_id
    UNION ALL
    SELECT tenant_id, 'profile', max(first_profile_id + quantity - 1) FROM order_item GROUP BY tenant_id
    OFFSET 0) used LEFT JOIN id_block USING (kind)
WHERE next IS NULL OR last_id >= next;

-- Fault: tenants share an orderId
SELECT tenant_id, order_id FROM orders JOIN
    (SELECT order_id FROM orders GROUP BY order_id HAVING count(*) > 1) twice USING (order_id);
