-- Request ids of calls that change something, of the last eleven minutes: filled only while Valkey is away, so that a
-- call is taken once by all processes then too.
CREATE TABLE used_request (
    app_key text NOT NULL,
    request_id uuid NOT NULL,
    used_at timestamptz NOT NULL,
    PRIMARY KEY (app_key, request_id)
);
CREATE INDEX used_request_age ON used_request (used_at);
