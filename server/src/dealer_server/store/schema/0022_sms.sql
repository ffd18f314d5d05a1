-- SMS that dealers send to the devices of their eSIMs (docs/decisions/0031-sms.md).

INSERT INTO id_block VALUES ('sms', 0);

-- The row stays, so that its transactionId never sends another one. digest: of profile and text, keyed. message: the text,
-- sealed; NULL once it is old enough. in_doubt: its supplier was asked, and no answer says what came of it. detail: for the
-- operator.
CREATE TABLE sms (
    tenant_id bigint NOT NULL,
    sms_id bigint NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    profile_id bigint NOT NULL,
    digest bytea NOT NULL,
    message bytea,
    supplier text NOT NULL,
    iccid text NOT NULL,
    status text NOT NULL CHECK (status IN ('PENDING', 'SENT', 'FAILED')),
    fail_reason text CHECK (fail_reason IN ('NOT_SENT', 'UNKNOWN')),
    detail text,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    due_at timestamptz,
    claim bigint,
    claims integer NOT NULL DEFAULT 0,
    in_doubt boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, sms_id),
    UNIQUE (tenant_id, transaction_id),
    FOREIGN KEY (tenant_id, profile_id) REFERENCES profile,
    CONSTRAINT due_until_it_is_finished CHECK ((due_at IS NULL) = (status <> 'PENDING')),
    CONSTRAINT finished_says_when CHECK ((finished_at IS NULL) = (status = 'PENDING')),
    CONSTRAINT failed_says_why CHECK ((fail_reason IS NULL) = (status <> 'FAILED')),
    CONSTRAINT text_until_it_is_finished CHECK (message IS NOT NULL OR status <> 'PENDING')
);
CREATE INDEX sms_of_profile ON sms (tenant_id, profile_id, sms_id);
CREATE INDEX sms_due ON sms (supplier, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sms_text ON sms (tenant_id, sms_id) WHERE message IS NOT NULL;

-- Of an SMS the text goes.
ALTER TABLE retention DROP CONSTRAINT retention_kind_check;
ALTER TABLE retention ADD CONSTRAINT retention_kind_check
    CHECK (kind IN ('webhook_attempt', 'webhook_delivery', 'supplier_call', 'supplier_event', 'sms'));
INSERT INTO retention (kind, deleted_before) VALUES ('sms', '2020-01-01Z');
