-- A3: each entry's balance follows from the one before

-- Fault: the entry does not follow from the one before
SELECT * FROM (
    SELECT tenant_id, version, entry_type, reference, amount, balance_after,
        lag(version, 1, 0::bigint) OVER entries AS version_before,
        lag(balance_after, 1, 0::bigint) OVER entries AS balance_before
    FROM ledger_entry WINDOW entries AS (PARTITION BY tenant_id ORDER BY version)) e
WHERE version <> version_before + 1 OR balance_after <> balance_before::numeric + amount;
