-- Reports and statements: sums by day, kept by the worker (docs/decisions/0040-reports.md). Days are days of UTC, amounts
-- are in ten-thousandths. The tables start empty: the worker adds up what is there.

-- What was sold, refunded and bought on a day. sold, refunded: eSIMs and recharges. costed: purchases whose cost is known.
-- currency: the wallet's for revenue and refunds, the supplier's for cost.
CREATE TABLE report_day (
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
    PRIMARY KEY (tenant_id, day, package_code, supplier, currency)
) WITH (fillfactor = 70);
CREATE INDEX report_day_by_day ON report_day (day);

-- The same of all dealers, which most reports read.
CREATE TABLE report_all (
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
    PRIMARY KEY (day, package_code, supplier, currency)
) WITH (fillfactor = 70);

-- The ledger entries of a day, by kind: ORDER_PAY entries are purchases or recharges.
CREATE TABLE wallet_day (
    tenant_id bigint NOT NULL,
    day date NOT NULL,
    kind text NOT NULL CHECK (kind IN ('PURCHASE', 'RECHARGE', 'REFUND', 'TOPUP', 'ADJUST')),
    entries bigint NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY (tenant_id, day, kind)
) WITH (fillfactor = 70);

-- The last ledger entry of each wallet that is in these sums. It moves in the transaction that adds to them. rebuilt_at:
-- the rebuild that emptied the sums of this dealer last.
CREATE TABLE report_cursor (
    tenant_id bigint PRIMARY KEY REFERENCES wallet,
    version bigint NOT NULL,
    rebuilt_at timestamptz
) WITH (fillfactor = 50);

-- A rebuild that is not finished.
CREATE TABLE report_rebuild (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    started_at timestamptz NOT NULL
);

-- The supplier that a line was sold for, where an operator has sent it to another one since.
ALTER TABLE order_item ADD COLUMN sold_supplier text;

-- reported: its cost is in report_day. What is DONE or WRITTEN_OFF changes no more.
ALTER TABLE purchase ADD COLUMN reported boolean NOT NULL DEFAULT false;
CREATE INDEX purchase_to_report ON purchase (tenant_id, profile_id, position)
    WHERE state IN ('DONE', 'WRITTEN_OFF') AND NOT reported;
