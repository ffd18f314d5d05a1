-- A3: each entry's balance follows from the one before

-- Fault: the entry does not follow from the one before
SELECT * FROM (
    SELECT tenant_id, e.version, entry_type, reference, amount, balance_after,
        coalesce(lag(e.version) OVER entries, o.version, 0) AS version_before,
        coalesce(lag(e.balance_after) OVER entries, o.balance, 0) AS balance_before
    FROM {entries} e LEFT JOIN {opening} o USING (tenant_id)
    WINDOW entries AS (PARTITION BY tenant_id ORDER BY e.version)) e
WHERE version <> version_before + 1 OR balance_after <> balance_before::numeric + amount;
