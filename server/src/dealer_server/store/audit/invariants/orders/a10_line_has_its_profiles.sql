-- A10: a line has as many profiles as its quantity; deliveryStatus says how many have codes

-- Fault: the line has not as many profiles as its quantity
SELECT tenant_id, order_id, line, quantity, coalesce(profiles, 0) AS profiles
FROM order_item LEFT JOIN
    (SELECT tenant_id, order_id, line, count(*) AS profiles FROM profile GROUP BY tenant_id, order_id, line) p
    USING (tenant_id, order_id, line)
WHERE quantity IS DISTINCT FROM profiles;

-- Fault: delivery_status does not say how many live profiles have codes
SELECT tenant_id, order_id, delivery_status, settles_as FROM (
    SELECT tenant_id, order_id, delivery_status, CASE
        WHEN kinds & {live} = 0 THEN delivery_status
        WHEN kinds & {lacking} = 0 THEN 'DELIVERED'
        WHEN kinds & {ready} <> 0 THEN 'PARTIAL'
        WHEN kinds & {live} = {failed} THEN 'FAILED'
        ELSE 'PENDING' END AS settles_as
    FROM orders JOIN
        (SELECT tenant_id, order_id, bit_or({kind}) AS kinds FROM profile GROUP BY tenant_id, order_id) p
        USING (tenant_id, order_id)) settled
WHERE delivery_status <> settles_as;
