-- A8: a profile is refunded at most once

-- Fault: the profile is not refunded once, or held by no refund
SELECT tenant_id, order_id, profile_id, refunded, held, coalesce(l.completed, 0) AS completed,
    coalesce(l.pending, 0) AS pending
FROM profile LEFT JOIN
    (SELECT tenant_id, profile_id, count(*) FILTER (WHERE l.status = 'COMPLETED') AS completed,
        count(*) FILTER (WHERE r.status = 'REFUNDING') AS pending
    FROM refund_line l JOIN refund r USING (tenant_id, refund_id)
    GROUP BY tenant_id, profile_id) l USING (tenant_id, profile_id)
WHERE refunded::int <> coalesce(l.completed, 0) OR held::int <> coalesce(l.pending, 0);
