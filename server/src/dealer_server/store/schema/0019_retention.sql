-- What is deleted once it is old enough (docs/decisions/0027-retention.md).

-- One row per kind of what is deleted. deleted_before: rows older than that may be missing, and no others. deleted: how many
-- rows went so far.
CREATE TABLE retention (
    kind text PRIMARY KEY CHECK (kind IN ('webhook_attempt', 'webhook_delivery', 'supplier_call', 'supplier_event')),
    deleted_before timestamptz NOT NULL,
    swept_at timestamptz,
    deleted bigint NOT NULL DEFAULT 0
);
-- Attempts were deleted after 30 days before.
INSERT INTO retention (kind, deleted_before) VALUES ('webhook_attempt', now() - interval '30 days'),
    ('webhook_delivery', '2020-01-01Z'), ('supplier_call', '2020-01-01Z'), ('supplier_event', '2020-01-01Z');

-- How far the sweep has come through the ids of each tenant (0: of what belongs to no tenant). oldest_at: nothing behind
-- `reached` is older, so nothing is read of a tenant before this time is past the retention.
CREATE TABLE retention_cursor (
    kind text NOT NULL REFERENCES retention,
    tenant_id bigint NOT NULL,
    reached bigint NOT NULL DEFAULT 0,
    oldest_at timestamptz NOT NULL,
    PRIMARY KEY (kind, tenant_id)
) WITH (fillfactor = 50);
INSERT INTO retention_cursor (kind, tenant_id, oldest_at) VALUES ('supplier_event', 0, '2020-01-01Z');

-- What the sweep has passed although it was not finished, or was finished only lately, such as a delivery that was sent
-- again. It is looked at once more when `since` is past the retention.
CREATE TABLE retention_postponed (
    kind text NOT NULL REFERENCES retention,
    tenant_id bigint NOT NULL,
    id bigint NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (kind, tenant_id, id)
);
CREATE INDEX retention_postponed_since ON retention_postponed (kind, since);
