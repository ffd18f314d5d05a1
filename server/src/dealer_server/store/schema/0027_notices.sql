-- What dealers and operators are told of by mail and at notice URLs (docs/decisions/0035-notices.md).

-- One row per fact, written with the fact where it has a transaction. tenant_id 0: for operators. fact: what the notice is
-- about, so that nothing is told twice. addressed_at: when it was decided who is told.
CREATE TABLE notice (
    tenant_id bigint NOT NULL,
    notice_id bigint GENERATED ALWAYS AS IDENTITY,
    notice_type text NOT NULL,
    fact text COLLATE "C" NOT NULL,
    data json NOT NULL,
    created_at timestamptz NOT NULL,
    addressed_at timestamptz,
    PRIMARY KEY (tenant_id, notice_id),
    UNIQUE (tenant_id, notice_type, fact)
);
CREATE INDEX notice_new ON notice (notice_id) WHERE addressed_at IS NULL;

-- One mail, or one POST to a notice URL. user_id: whom the mail is for; NULL: the notice URL. digest: a mail that collects
-- notices until it is due. due_at: when it goes; IN_FLIGHT: when its lease runs out. problem: why the last attempt failed.
CREATE TABLE notice_delivery (
    tenant_id bigint NOT NULL,
    delivery_id bigint GENERATED ALWAYS AS IDENTITY,
    user_id bigint REFERENCES console_user ON DELETE CASCADE,
    digest boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'READY'
        CHECK (state IN ('READY', 'IN_FLIGHT', 'RETRY', 'DELIVERED', 'FAILED', 'SKIPPED')),
    attempt_count integer NOT NULL DEFAULT 0,
    due_at timestamptz,
    claim bigint,
    problem text,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, delivery_id),
    CONSTRAINT due_until_it_is_finished CHECK ((due_at IS NOT NULL) = (state IN ('READY', 'RETRY', 'IN_FLIGHT'))),
    CONSTRAINT in_flight_when_claimed CHECK ((claim IS NOT NULL) = (state = 'IN_FLIGHT'))
);
CREATE INDEX notice_delivery_due ON notice_delivery (due_at, delivery_id) WHERE due_at IS NOT NULL;
CREATE INDEX notice_delivery_url ON notice_delivery (tenant_id, due_at, delivery_id)
    WHERE due_at IS NOT NULL AND user_id IS NULL;
CREATE INDEX notice_delivery_user ON notice_delivery (user_id) WHERE user_id IS NOT NULL;
CREATE UNIQUE INDEX notice_digest_that_collects ON notice_delivery (user_id) WHERE digest AND state = 'READY';

-- The notices that a delivery tells of: one, or those of a digest.
CREATE TABLE notice_content (
    tenant_id bigint NOT NULL,
    delivery_id bigint NOT NULL,
    notice_id bigint NOT NULL,
    PRIMARY KEY (tenant_id, delivery_id, notice_id),
    FOREIGN KEY (tenant_id, delivery_id) REFERENCES notice_delivery ON DELETE CASCADE
);
CREATE INDEX notice_content_of_notice ON notice_content (tenant_id, notice_id);

-- What a user wants to be mailed. mail: '' means the name, where that is an address. off: types of notices.
CREATE TABLE notice_setting (
    user_id bigint PRIMARY KEY REFERENCES console_user ON DELETE CASCADE,
    mail text NOT NULL DEFAULT '',
    digest boolean NOT NULL DEFAULT false,
    off text[] NOT NULL DEFAULT '{}'
);

-- Where a dealer receives notices; no row: nowhere.
CREATE TABLE notice_url (
    tenant_id bigint PRIMARY KEY REFERENCES tenant,
    url text NOT NULL CHECK (url <> ''),
    updated_at timestamptz NOT NULL
);

-- What the last look at a wallet saw, and what was told. version, threshold, credit_limit: as they were. told: how low,
-- since the wallet version `since`.
CREATE TABLE wallet_look (
    tenant_id bigint PRIMARY KEY REFERENCES wallet,
    version bigint NOT NULL,
    threshold bigint NOT NULL,
    credit_limit bigint NOT NULL,
    told smallint NOT NULL,
    since bigint NOT NULL
) WITH (fillfactor = 50);

-- What holds at present and was told of: a stock that is low.
CREATE TABLE notice_condition (
    notice_type text NOT NULL,
    subject text NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (notice_type, subject)
);

-- Mails that `dev` shows instead of sending them.
CREATE TABLE dev_mail (
    mail_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    message bytea NOT NULL
);

ALTER TABLE retention DROP CONSTRAINT retention_kind_check;
ALTER TABLE retention ADD CONSTRAINT retention_kind_check
    CHECK (kind IN ('webhook_attempt', 'webhook_delivery', 'supplier_call', 'supplier_event', 'sms', 'notice'));
INSERT INTO retention (kind, deleted_before) VALUES ('notice', '2020-01-01Z');
INSERT INTO retention_cursor (kind, tenant_id, oldest_at) VALUES ('notice', 0, '2020-01-01Z');
