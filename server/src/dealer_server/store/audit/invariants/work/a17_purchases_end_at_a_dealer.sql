-- A17: supplier purchases are delivered, pending or written off

-- Fault: an eSIM was bought that is neither in its dealer's hands, nor voided or being voided
SELECT tenant_id, order_id, line, profile_id, supplier, unit_key, iccid FROM purchase b
WHERE state = 'DONE' AND recharges IS NULL AND NOT EXISTS (SELECT FROM profile p
        WHERE p.tenant_id = b.tenant_id AND p.profile_id = b.profile_id AND p.iccid = b.iccid)
    AND NOT EXISTS (SELECT FROM void_request v
        WHERE v.tenant_id = b.tenant_id AND v.profile_id = b.profile_id AND v.iccid = b.iccid);

-- Fault: a recharge was bought that is not applied
SELECT tenant_id, order_id, line, profile_id, supplier, unit_key FROM purchase b
WHERE state = 'DONE' AND recharges IS NOT NULL AND NOT EXISTS (SELECT FROM profile p
    WHERE p.tenant_id = b.tenant_id AND p.profile_id = b.profile_id AND p.plan_mode IS NOT NULL);

-- Fault: a recharge is applied that was never bought
SELECT p.tenant_id, p.order_id, p.line, p.profile_id, i.supplier
FROM profile p JOIN order_item i USING (tenant_id, order_id, line) JOIN supplier s ON s.code = i.supplier
WHERE p.plan_mode IS NOT NULL AND NOT EXISTS (SELECT FROM purchase b
    WHERE b.tenant_id = p.tenant_id AND b.profile_id = p.profile_id AND b.state = 'DONE');

-- Fault: the profile's codes were never bought
SELECT p.tenant_id, p.order_id, p.line, p.profile_id, i.supplier, p.iccid
FROM profile p JOIN order_item i USING (tenant_id, order_id, line) JOIN supplier s ON s.code = i.supplier
WHERE p.iccid IS NOT NULL AND NOT EXISTS (SELECT FROM purchase b WHERE b.tenant_id = p.tenant_id
    AND b.profile_id = p.profile_id AND b.iccid = p.iccid AND b.state = 'DONE');
