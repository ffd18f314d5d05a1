-- Compatible from: 40
-- Sums of days and of months, for reports of many days (docs/decisions/0070-sums-of-sums.md). A trigger makes them of those
-- in report_day, so that a program that knows nothing of them keeps them too.

-- DAY: of all packages. MONTH: of all packages in the month that begins on that day. PACKAGE_MONTH: of one package in it.
-- tenant_id 0: of all dealers. Sums of a day and a package are in report_day and report_all.
CREATE TABLE report_sum (
    kind text NOT NULL,
    tenant_id bigint NOT NULL,
    day date NOT NULL,
    package_code text NOT NULL,
    supplier text NOT NULL,
    currency text NOT NULL,
    sold bigint NOT NULL,
    revenue bigint NOT NULL,
    refunded bigint NOT NULL,
    refunds bigint NOT NULL,
    costed bigint NOT NULL,
    cost bigint NOT NULL,
    PRIMARY KEY (kind, tenant_id, day, package_code, supplier, currency)
) PARTITION BY LIST (kind);
CREATE TABLE report_sum_day PARTITION OF report_sum FOR VALUES IN ('DAY') WITH (fillfactor = 70);
CREATE TABLE report_sum_month PARTITION OF report_sum FOR VALUES IN ('MONTH') WITH (fillfactor = 70);
CREATE TABLE report_sum_package_month PARTITION OF report_sum FOR VALUES IN ('PACKAGE_MONTH') WITH (fillfactor = 70);
CREATE INDEX report_sum_day_by_day ON report_sum_day (day);
CREATE INDEX report_sum_package_month_by_package ON report_sum_package_month (package_code, day);

-- `added`, `removed`: the rows of report_day as a statement left and found them.
CREATE FUNCTION add_to_report_sum() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    EXECUTE format(
        $statement$
        INSERT INTO report_sum AS s
        SELECT kind, coalesce(tenant_id, 0), of.day, of.package_code, supplier, currency, sum(sign * sold),
            sum(sign * revenue), sum(sign * refunded), sum(sign * refunds), sum(sign * costed), sum(sign * cost)
        FROM (%s) d
        CROSS JOIN LATERAL (VALUES ('DAY', d.day, ''), ('MONTH', date_trunc('month', d.day::timestamp)::date, ''),
            ('PACKAGE_MONTH', date_trunc('month', d.day::timestamp)::date, d.package_code)) AS of(kind, day, package_code)
        GROUP BY kind, of.day, of.package_code, supplier, currency, GROUPING SETS ((tenant_id), ())
        ON CONFLICT (kind, tenant_id, day, package_code, supplier, currency) DO UPDATE SET
            sold = s.sold + excluded.sold, revenue = s.revenue + excluded.revenue,
            refunded = s.refunded + excluded.refunded, refunds = s.refunds + excluded.refunds,
            costed = s.costed + excluded.costed, cost = s.cost + excluded.cost
        $statement$,
        CASE TG_OP
            WHEN 'INSERT' THEN 'SELECT *, 1 AS sign FROM added'
            WHEN 'DELETE' THEN 'SELECT *, -1 AS sign FROM removed'
            ELSE 'SELECT *, 1 AS sign FROM added UNION ALL SELECT *, -1 FROM removed'
        END
    );
    RETURN NULL;
END
$function$;

CREATE TRIGGER report_sum_insert AFTER INSERT ON report_day REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION add_to_report_sum();
CREATE TRIGGER report_sum_update AFTER UPDATE ON report_day REFERENCING NEW TABLE AS added OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION add_to_report_sum();
CREATE TRIGGER report_sum_delete AFTER DELETE ON report_day REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION add_to_report_sum();

-- Nobody adds meanwhile: the triggers hold their table until this is committed.
INSERT INTO report_sum
SELECT kind, coalesce(tenant_id, 0), of.day, of.package_code, supplier, currency, sum(sold), sum(revenue), sum(refunded),
    sum(refunds), sum(costed), sum(cost)
FROM report_day d
CROSS JOIN LATERAL (VALUES ('DAY', d.day, ''), ('MONTH', date_trunc('month', d.day::timestamp)::date, ''),
    ('PACKAGE_MONTH', date_trunc('month', d.day::timestamp)::date, d.package_code)) AS of(kind, day, package_code)
GROUP BY kind, of.day, of.package_code, supplier, currency, GROUPING SETS ((tenant_id), ());
