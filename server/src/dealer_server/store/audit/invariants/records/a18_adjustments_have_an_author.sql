-- A18: every adjustment has an author in the audit log

-- Fault: nobody answers for the entry in the audit log
SELECT tenant_id, version, entry_type, amount, created_at FROM ledger_entry e
WHERE entry_type IN ('ADJUST', 'TOPUP') AND NOT EXISTS (
    SELECT FROM audit_log a WHERE a.tenant_id = e.tenant_id AND a.detail ->> 'entryVersion' = e.version::text
        AND a.author <> '');
