-- Compatible from: 40
-- How each dealer's endpoint answered hour by hour, for its page in the console (docs/decisions/0042-overview.md).

-- Attempts that began in an hour that is over, with the same answer. http_status: 0 where none came. error: '' where the
-- webhook was accepted. took_ms: all of them together. Kept 31 days.
CREATE TABLE webhook_hour (
    tenant_id bigint NOT NULL REFERENCES tenant,
    hour timestamptz NOT NULL,
    http_status integer NOT NULL,
    error text NOT NULL,
    attempts bigint NOT NULL,
    took_ms bigint NOT NULL,
    PRIMARY KEY (tenant_id, hour, http_status, error)
);
-- By itself: on a cluster a table that refers to `tenant` is known to Citus, which passes the whole text on with its index.
DO $$ BEGIN EXECUTE 'CREATE INDEX webhook_hour_hour ON webhook_hour USING brin (hour)'; END $$;

-- by_dealer: the hour is counted in webhook_hour too.
ALTER TABLE overview_hour ADD COLUMN by_dealer boolean NOT NULL DEFAULT false;
