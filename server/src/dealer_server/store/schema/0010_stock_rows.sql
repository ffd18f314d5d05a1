-- A stock order takes its codes, row by row, in the transaction that pays it: no counter that all orders of a package lock.

CREATE UNIQUE INDEX stock_profile_taken ON stock_profile (taken_tenant_id, taken_by) WHERE taken_by IS NOT NULL;

-- Profiles that were sold and wait for their code.
UPDATE stock_profile SET taken_tenant_id = waiting.tenant_id, taken_by = waiting.profile_id, taken_at = waiting.updated_at
FROM (SELECT iccid, package_code, row_number() OVER (PARTITION BY package_code ORDER BY iccid) AS number
      FROM stock_profile WHERE taken_by IS NULL) free
JOIN (SELECT p.tenant_id, profile_id, package_code, p.updated_at,
          row_number() OVER (PARTITION BY package_code ORDER BY profile_id) AS number
      FROM profile p JOIN order_item USING (tenant_id, order_id, line)
      WHERE supplier = 'stock' AND p.iccid IS NULL AND NOT cancelled AND NOT refunded AND NOT failed) waiting
    USING (package_code, number)
WHERE stock_profile.iccid = free.iccid;

DROP TABLE stock_level;
