-- Money after the sale: refunds, top-ups, and acts that can only grow.

-- held: a pending refund names this profile; no other may.
ALTER TABLE profile ADD COLUMN held boolean NOT NULL DEFAULT false;
ALTER TABLE profile ADD CONSTRAINT held_while_it_can_be_refunded CHECK (NOT held OR NOT refunded);

INSERT INTO id_block VALUES ('refund', 0), ('topup', 0);

-- One request to give money back: one credit at most (the ledger's UNIQUE holds it too), one REFUND_COMPLETED.
-- scope: what it named, as 16 bytes (rules/refunds/refund.py). credited: what came of `amount` once it is settled. due_at set: all of
-- it is decided, and the worker settles it.
CREATE TABLE refund (
    tenant_id bigint NOT NULL REFERENCES wallet,
    refund_id bigint NOT NULL,
    order_id bigint NOT NULL,
    refund_transaction_id text COLLATE "C",
    scope bytea NOT NULL,
    status text NOT NULL CHECK (status IN ('REFUNDING', 'REFUNDED', 'REJECTED')),
    amount bigint NOT NULL CHECK (amount >= 0),
    credited bigint NOT NULL DEFAULT 0 CHECK (credited BETWEEN 0 AND amount),
    remark text,
    author text NOT NULL,
    created_at timestamptz NOT NULL,
    settled_at timestamptz,
    due_at timestamptz,
    PRIMARY KEY (tenant_id, refund_id),
    FOREIGN KEY (tenant_id, order_id) REFERENCES orders,
    CONSTRAINT settled_says_when CHECK ((settled_at IS NULL) = (status = 'REFUNDING'))
);
CREATE UNIQUE INDEX refund_transaction ON refund (tenant_id, refund_transaction_id)
    WHERE refund_transaction_id IS NOT NULL;
CREATE INDEX refund_of_order ON refund (tenant_id, order_id, refund_id);
CREATE INDEX refund_pending ON refund (refund_id) WHERE status = 'REFUNDING';
CREATE INDEX refund_due ON refund (due_at) WHERE due_at IS NOT NULL;

-- A profile of a refund. way: who has a say in it. READY: decided, its credit is to come.
CREATE TABLE refund_line (
    tenant_id bigint NOT NULL,
    refund_id bigint NOT NULL,
    profile_id bigint NOT NULL,
    line smallint NOT NULL,
    amount bigint NOT NULL CHECK (amount >= 0),
    way text NOT NULL CHECK (way IN ('AT_ONCE', 'SUPPLIER', 'REVIEW')),
    status text NOT NULL CHECK (status IN ('PENDING', 'READY', 'COMPLETED', 'REJECTED')),
    reason text,
    PRIMARY KEY (tenant_id, refund_id, profile_id),
    FOREIGN KEY (tenant_id, refund_id) REFERENCES refund,
    FOREIGN KEY (tenant_id, profile_id) REFERENCES profile
);
-- A profile is refunded at most once, and held by one refund at a time.
CREATE UNIQUE INDEX refund_line_of_profile ON refund_line (tenant_id, profile_id) WHERE status <> 'REJECTED';

-- A profile whose supplier has to be asked to void it: for a refund, or because the dealer cancelled it.
CREATE TABLE void_request (
    tenant_id bigint NOT NULL,
    profile_id bigint NOT NULL,
    order_id bigint NOT NULL,
    line smallint NOT NULL,
    refund_id bigint,
    supplier text NOT NULL,
    package_code text NOT NULL,
    iccid text NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz,
    claim bigint,
    claims integer NOT NULL DEFAULT 0,
    outcome text CHECK (outcome IN ('VOIDED', 'REFUSED')),
    PRIMARY KEY (tenant_id, profile_id),
    FOREIGN KEY (tenant_id, profile_id) REFERENCES profile,
    CONSTRAINT due_until_it_has_an_outcome CHECK ((due_at IS NULL) = (outcome IS NOT NULL))
);
CREATE INDEX void_request_of_order ON void_request (tenant_id, order_id);
CREATE INDEX void_request_due ON void_request (supplier, due_at) WHERE due_at IS NOT NULL;

-- A dealer asks for its wallet to be topped up; an operator approves, which credits it once.
CREATE TABLE topup (
    tenant_id bigint NOT NULL REFERENCES wallet,
    topup_id bigint NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    amount bigint NOT NULL CHECK (amount > 0),
    currency text NOT NULL,
    status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'APPROVED', 'REJECTED', 'CANCELLED')),
    pay_method text CHECK (pay_method IN ('BANK_TRANSFER', 'CARD', 'USDT', 'OTHER')),
    pay_reference text,
    remark text,
    reject_reason text,
    reviewer text,
    created_at timestamptz NOT NULL,
    reviewed_at timestamptz,
    PRIMARY KEY (tenant_id, topup_id),
    UNIQUE (tenant_id, transaction_id),
    CONSTRAINT reviewed_says_when CHECK ((reviewed_at IS NULL) = (status = 'PENDING'))
);
CREATE INDEX topup_pending ON topup (topup_id) WHERE status = 'PENDING';

-- What stands in the ledger and in the audit log is never changed and never goes away: whoever else may use this
-- database, and we ourselves, may only add.
REVOKE UPDATE, DELETE, TRUNCATE ON ledger_entry, audit_log FROM CURRENT_USER, PUBLIC;
