-- Dealers buy in the console (docs/decisions/0039-buying.md).

-- A file of orders that a dealer's user gave. token: its orders' transactionIds begin with it. confirmed_at: when it was first
-- bought from; NULL: only looked at. The newest of each dealer are kept.
CREATE TABLE bulk_order (
    tenant_id bigint NOT NULL REFERENCES tenant,
    bulk_id bigint GENERATED ALWAYS AS IDENTITY,
    token text NOT NULL,
    file_sha256 bytea NOT NULL,
    author text NOT NULL,
    created_at timestamptz NOT NULL,
    confirmed_at timestamptz,
    PRIMARY KEY (tenant_id, bulk_id)
);

-- A line of it: one order, found by its transactionId. refused: why it was not placed the last time, as a result code.
CREATE TABLE bulk_line (
    tenant_id bigint NOT NULL,
    bulk_id bigint NOT NULL,
    line integer NOT NULL,
    package_code text NOT NULL,
    quantity integer NOT NULL,
    period_num integer,
    remark text,
    reference text,
    refused text,
    message text,
    PRIMARY KEY (tenant_id, bulk_id, line),
    FOREIGN KEY (tenant_id, bulk_id) REFERENCES bulk_order ON DELETE CASCADE
);

-- How many calls of a dealer were answered with success and looked at for the sample, and how many of them were kept ever.
CREATE TABLE served_count (
    tenant_id bigint PRIMARY KEY REFERENCES tenant,
    served bigint NOT NULL,
    kept bigint NOT NULL
) WITH (fillfactor = 50);

-- A sample of each dealer's calls that succeeded: a ring, in which the call with `number` has the slot number modulo its size.
-- No body and no code is kept.
CREATE TABLE served_call (
    tenant_id bigint NOT NULL REFERENCES tenant,
    slot smallint NOT NULL,
    number bigint NOT NULL,
    at timestamptz NOT NULL,
    path text NOT NULL,
    request_id text NOT NULL,
    trace_id text NOT NULL,
    address text NOT NULL,
    microseconds integer NOT NULL,
    body_bytes integer NOT NULL,
    answer_bytes integer NOT NULL,
    PRIMARY KEY (tenant_id, slot)
) WITH (fillfactor = 80);

-- The page of an eSIM on its way to its buyer. mail: whom to; NULL once it is finished, then nothing needs it any more.
CREATE TABLE buyer_mail (
    tenant_id bigint NOT NULL REFERENCES tenant,
    mail_id bigint GENERATED ALWAYS AS IDENTITY,
    order_id bigint NOT NULL,
    profile_id bigint NOT NULL,
    mail text,
    language text NOT NULL,
    state text NOT NULL DEFAULT 'READY' CHECK (state IN ('READY', 'IN_FLIGHT', 'RETRY', 'DELIVERED', 'FAILED', 'SKIPPED')),
    attempt_count integer NOT NULL DEFAULT 0,
    due_at timestamptz,
    claim bigint,
    problem text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, mail_id),
    CONSTRAINT due_until_it_is_finished CHECK ((due_at IS NOT NULL) = (state IN ('READY', 'RETRY', 'IN_FLIGHT'))),
    CONSTRAINT in_flight_when_claimed CHECK ((claim IS NOT NULL) = (state = 'IN_FLIGHT')),
    CONSTRAINT address_until_it_is_finished CHECK ((mail IS NOT NULL) = (due_at IS NOT NULL))
);
CREATE INDEX buyer_mail_due ON buyer_mail (due_at, mail_id) WHERE due_at IS NOT NULL;
CREATE INDEX buyer_mail_of_profile ON buyer_mail (tenant_id, profile_id, mail_id);
CREATE INDEX buyer_mail_at ON buyer_mail (tenant_id, created_at);

ALTER TABLE retention DROP CONSTRAINT retention_kind_check;
INSERT INTO retention (kind, deleted_before) VALUES ('served_call', '2020-01-01Z');
DO $$ BEGIN
    EXECUTE format('ALTER TABLE retention ADD CONSTRAINT retention_kind_check CHECK (kind IN (%s))',
        (SELECT string_agg(quote_literal(kind), ', ' ORDER BY kind) FROM retention));
END $$;
