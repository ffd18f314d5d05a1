-- A2: a wallet's version is the number of its entries, and they are numbered without gap

-- Fault: version is not the number of entries, or not the last one
SELECT tenant_id, w.version, coalesce(o.version, 0) + coalesce(e.entries, 0) AS entries,
    coalesce(e.last, o.version, 0) AS last_version
FROM wallet w FULL JOIN
    (SELECT tenant_id, count(*) AS entries, max(version) AS last FROM {entries} e GROUP BY tenant_id) e
    USING (tenant_id) FULL JOIN {opening} o USING (tenant_id)
WHERE w.version IS DISTINCT FROM coalesce(o.version, 0) + coalesce(e.entries, 0)
    OR w.version IS DISTINCT FROM coalesce(e.last, o.version, 0);
