-- A24: the audit log is whole: nothing in it was changed or taken out

-- Fault: the act is not what was written down, or the one before it is gone
SELECT tenant_id, audit_id, at, author, action FROM (
    SELECT *, coalesce(lag(hash) OVER (ORDER BY audit_id), {hash_before}) AS hash_before FROM audit_log) act
WHERE hash IS DISTINCT FROM sha256(hash_before || {act});

-- Fault: acts are missing at the end of the log
SELECT NULL::bigint AS tenant_id, head.acts, log.acts AS found FROM
    (SELECT count(*) + {acts_before} AS acts, (SELECT hash FROM audit_log ORDER BY audit_id DESC LIMIT 1) AS hash
    FROM audit_log) log LEFT JOIN audit_head head ON true
WHERE log.acts IS DISTINCT FROM head.acts OR coalesce(log.hash, {hash_before}) IS DISTINCT FROM head.hash;
