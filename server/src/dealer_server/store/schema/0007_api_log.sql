-- Why was my call refused? What a dealer's developers ask most, answered by the service itself.

-- How many refused calls of a dealer were written ever, and how many more came too fast to be.
CREATE TABLE refused_count (
    tenant_id bigint PRIMARY KEY REFERENCES tenant,
    written bigint NOT NULL,
    dropped bigint NOT NULL
) WITH (fillfactor = 50);

-- The last 1 000 refused calls of each dealer: a ring, in which the call with `number` has the slot number modulo 1 000.
-- failed: the check that refused it. headers: pairs as JSON, those that matter only. body_head: what of the body was signed,
-- its first 8 KiB; NULL with body_bytes and body_sha256 where the call was refused unread. No secret is ever kept.
CREATE TABLE refused_call (
    tenant_id bigint NOT NULL REFERENCES tenant,
    slot smallint NOT NULL CHECK (slot BETWEEN 0 AND 999),
    number bigint NOT NULL,
    at timestamptz NOT NULL,
    address text NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    app_key text NOT NULL,
    request_id text,
    trace_id text NOT NULL,
    code text NOT NULL,
    failed text NOT NULL,
    message text NOT NULL,
    data text NOT NULL,
    headers text NOT NULL,
    body_head bytea,
    body_bytes integer,
    body_sha256 text,
    PRIMARY KEY (tenant_id, slot)
) WITH (fillfactor = 80);

-- What a dealer has managed for the first time, for the checklist of its first run.
CREATE TABLE first_run (
    tenant_id bigint NOT NULL REFERENCES tenant,
    step text NOT NULL CHECK (step IN ('HEALTH', 'BALANCE', 'WEBHOOK')),
    done_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, step)
);
