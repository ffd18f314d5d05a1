-- A21: a profile sold from stock has taken a code of its own until it is delivered or void

-- Fault: a profile sold from stock waits and has taken no code
SELECT p.tenant_id, order_id, profile_id, package_code
FROM profile p JOIN order_item USING (tenant_id, order_id, line)
WHERE supplier = '{stock}' AND {unsold} AND NOT EXISTS
    (SELECT FROM stock_profile WHERE taken_tenant_id = p.tenant_id AND taken_by = p.profile_id);
