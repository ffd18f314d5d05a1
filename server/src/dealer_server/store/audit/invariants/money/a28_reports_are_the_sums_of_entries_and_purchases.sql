-- A28: the sums of reports and statements are those of the ledger entries and purchases they hold

-- Fault: the sums begin after entries that the wallet does not have
SELECT tenant_id, c.version, w.version AS wallet_version
FROM report_cursor c LEFT JOIN wallet w USING (tenant_id)
WHERE c.version > coalesce(w.version, -1) OR c.version < 0;

-- Fault: a purchase is in the sums that is not over
SELECT tenant_id, profile_id, position, state FROM purchase WHERE reported AND state NOT IN ('DONE', 'WRITTEN_OFF');

-- Fault: the wallet's sums of a day are not those of its entries
SELECT tenant_id, day, kind, coalesce(d.entries, 0) AS entries, coalesce(e.entries, 0) AS ledger_entries,
    coalesce(d.amount, 0) AS amount, coalesce(e.amount, 0) AS ledger_amount
FROM wallet_day d FULL JOIN (
    SELECT tenant_id, (created_at AT TIME ZONE 'UTC')::date AS day, CASE WHEN entry_type <> 'ORDER_PAY' THEN entry_type
        WHEN recharge THEN 'RECHARGE' ELSE 'PURCHASE' END AS kind, count(*) AS entries, sum(amount) AS amount
    FROM ledger_entry l JOIN report_cursor c USING (tenant_id)
    LEFT JOIN (SELECT tenant_id, order_id AS reference, 'ORDER_PAY' AS entry_type, bool_or(recharges IS NOT NULL) AS recharge
        FROM order_item GROUP BY tenant_id, order_id) i USING (tenant_id, reference, entry_type)
    WHERE l.version <= c.version GROUP BY 1, 2, 3) e USING (tenant_id, day, kind)
WHERE coalesce(d.entries, 0) <> coalesce(e.entries, 0) OR coalesce(d.amount, 0) <> coalesce(e.amount, 0);

-- Fault: the sums of a day, package and supplier are not those of its sales, refunds and purchases
WITH item AS (
    SELECT tenant_id, order_id, line, package_code, coalesce(sold_supplier, supplier) AS supplier, quantity,
        price * period_num AS price
    FROM order_item
), entry AS (
    SELECT tenant_id, entry_type, reference, currency, (created_at AT TIME ZONE 'UTC')::date AS day
    FROM ledger_entry l JOIN report_cursor c USING (tenant_id) JOIN wallet w USING (tenant_id)
    WHERE l.version <= c.version
), change AS (
    SELECT tenant_id, day, package_code, supplier, currency, quantity::bigint AS sold, price * quantity AS revenue,
        0 AS refunded, 0 AS refunds, 0 AS costed, 0 AS cost
    FROM (SELECT *, reference AS order_id FROM entry WHERE entry_type = 'ORDER_PAY') e JOIN item USING (tenant_id, order_id)
    UNION ALL
    SELECT e.tenant_id, day, package_code, coalesce(b.supplier, i.supplier), currency, 0, 0, 1, l.amount, 0, 0
    FROM (SELECT *, reference AS refund_id FROM entry WHERE entry_type = 'REFUND') e
    JOIN refund r USING (tenant_id, refund_id) JOIN refund_line l USING (tenant_id, refund_id)
    JOIN item i ON i.tenant_id = l.tenant_id AND i.order_id = r.order_id AND i.line = l.line
    LEFT JOIN purchase b ON b.tenant_id = l.tenant_id AND b.profile_id = l.profile_id AND b.state = 'DONE'
    WHERE l.status = 'COMPLETED'
    UNION ALL
    SELECT tenant_id, day, package_code, part.supplier, part.currency, part.sold, part.revenue, 0, 0, part.costed, part.cost
    FROM (SELECT b.*, i.package_code, i.supplier AS sold_for, i.price, w.currency,
            (coalesce(b.finished_at, b.created_at) AT TIME ZONE 'UTC')::date AS day
        FROM purchase b JOIN item i USING (tenant_id, order_id, line) JOIN wallet w USING (tenant_id) WHERE b.reported) b
    CROSS JOIN LATERAL (VALUES
        (b.supplier, b.cost_currency, 0, 0, 1, b.cost, b.cost IS NOT NULL),
        (b.supplier, b.currency, 1, b.price, 0, 0, b.state = 'DONE' AND b.supplier <> sold_for),
        (sold_for, b.currency, -1, -b.price, 0, 0, b.state = 'DONE' AND b.supplier <> sold_for)
    ) AS part(supplier, currency, sold, revenue, costed, cost, holds) WHERE part.holds
), expected AS MATERIALIZED (
    SELECT tenant_id, day, package_code, supplier, currency, sum(sold) AS sold, sum(revenue) AS revenue,
        sum(refunded) AS refunded, sum(refunds) AS refunds, sum(costed) AS costed, sum(cost) AS cost
    FROM change GROUP BY 1, 2, 3, 4, 5
)
SELECT tenant_id, day, package_code, supplier, currency, d.sold, e.sold AS true_sold, d.revenue,
    e.revenue AS true_revenue, d.refunded, e.refunded AS true_refunded, d.refunds, e.refunds AS true_refunds, d.costed,
    e.costed AS true_costed, d.cost, e.cost AS true_cost
FROM report_day d FULL JOIN expected e USING (tenant_id, day, package_code, supplier, currency)
WHERE (coalesce(d.sold, 0), coalesce(d.revenue, 0), coalesce(d.refunded, 0), coalesce(d.refunds, 0),
        coalesce(d.costed, 0), coalesce(d.cost, 0))
    <> (coalesce(e.sold, 0), coalesce(e.revenue, 0), coalesce(e.refunded, 0), coalesce(e.refunds, 0),
        coalesce(e.costed, 0), coalesce(e.cost, 0));

-- Fault: the sums of all dealers are not those of each
SELECT NULL::bigint AS tenant_id, day, package_code, supplier, currency, a.sold, d.sold AS true_sold, a.revenue,
    d.revenue AS true_revenue, a.refunds, d.refunds AS true_refunds, a.cost, d.cost AS true_cost
FROM report_all a FULL JOIN (
    SELECT day, package_code, supplier, currency, sum(sold) AS sold, sum(revenue) AS revenue, sum(refunded) AS refunded,
        sum(refunds) AS refunds, sum(costed) AS costed, sum(cost) AS cost
    FROM report_day GROUP BY 1, 2, 3, 4) d USING (day, package_code, supplier, currency)
WHERE (coalesce(a.sold, 0), coalesce(a.revenue, 0), coalesce(a.refunded, 0), coalesce(a.refunds, 0),
        coalesce(a.costed, 0), coalesce(a.cost, 0))
    <> (coalesce(d.sold, 0), coalesce(d.revenue, 0), coalesce(d.refunded, 0), coalesce(d.refunds, 0),
        coalesce(d.costed, 0), coalesce(d.cost, 0));

-- Fault: the sums of days and months are not those they are made of
WITH expected AS (
    SELECT kind, coalesce(tenant_id, 0) AS tenant_id, of.day, of.package_code, supplier, currency, sum(sold) AS sold,
        sum(revenue) AS revenue, sum(refunded) AS refunded, sum(refunds) AS refunds, sum(costed) AS costed,
        sum(cost) AS cost
    FROM report_day d
    CROSS JOIN LATERAL (VALUES ('DAY', d.day, ''), ('MONTH', date_trunc('month', d.day::timestamp)::date, ''),
        ('PACKAGE_MONTH', date_trunc('month', d.day::timestamp)::date, d.package_code)) AS of(kind, day, package_code)
    GROUP BY kind, of.day, of.package_code, supplier, currency, GROUPING SETS ((tenant_id), ())
)
SELECT nullif(tenant_id, 0) AS tenant_id, kind, day, nullif(package_code, '') AS package_code, supplier, currency, s.sold,
    e.sold AS true_sold, s.revenue, e.revenue AS true_revenue, s.refunds, e.refunds AS true_refunds, s.cost,
    e.cost AS true_cost
FROM report_sum s FULL JOIN expected e USING (kind, tenant_id, day, package_code, supplier, currency)
WHERE (coalesce(s.sold, 0), coalesce(s.revenue, 0), coalesce(s.refunded, 0), coalesce(s.refunds, 0),
        coalesce(s.costed, 0), coalesce(s.cost, 0))
    <> (coalesce(e.sold, 0), coalesce(e.revenue, 0), coalesce(e.refunded, 0), coalesce(e.refunds, 0),
        coalesce(e.costed, 0), coalesce(e.cost, 0));
