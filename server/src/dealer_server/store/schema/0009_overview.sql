-- How the API and suppliers do, for the console; and a way from a call's id to the log of refused calls.

-- The API minute by minute and process by process, for two days. writes: calls that change something, apart from those
-- that only read. spread: how many calls took how long (rules/access/latency_histogram.py). failed: of these, how many were answered with
-- a fault of ours.
CREATE TABLE api_minute (
    minute timestamptz NOT NULL,
    process bigint NOT NULL,
    writes boolean NOT NULL,
    spread integer[] NOT NULL,
    failed integer NOT NULL,
    PRIMARY KEY (minute, process, writes)
) WITH (fillfactor = 50);

-- How a supplier was when a worker asked it last, about once a minute. since: since when it has been up, or down.
CREATE TABLE supplier_health (
    code text PRIMARY KEY REFERENCES supplier ON DELETE CASCADE,
    up boolean NOT NULL,
    since timestamptz NOT NULL,
    asked_at timestamptz NOT NULL,
    detail text NOT NULL,
    balance bigint,
    currency text
) WITH (fillfactor = 50);

CREATE INDEX refused_call_request_id ON refused_call (request_id);
CREATE INDEX refused_call_trace_id ON refused_call (trace_id);

-- Of `written`, the calls that nobody need have signed. Whoever knows an AppKey can have as many of these refused as
-- they like, so they go round slots 0 to 199 of refused_call, and the others round 200 to 999.
ALTER TABLE refused_count ADD COLUMN unsigned bigint NOT NULL DEFAULT 0;
