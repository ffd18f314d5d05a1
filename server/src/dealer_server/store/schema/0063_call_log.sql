-- Compatible from: 40
-- What was a call about, with which AppKey, and how many were there? For the API log of the console.

-- subject: the value of the parameter subject_kind, such as transactionId. Both are empty where a call names nothing.
ALTER TABLE served_call ADD COLUMN app_key text NOT NULL DEFAULT '', ADD COLUMN subject_kind text NOT NULL DEFAULT '',
    ADD COLUMN subject text NOT NULL DEFAULT '';

-- A dealer's calls of the last seven days, by the hour. slot: the number of the hour, modulo 168; a newer hour takes the
-- place of the one before it.
CREATE TABLE call_hour (
    tenant_id bigint NOT NULL REFERENCES tenant,
    slot smallint NOT NULL CHECK (slot BETWEEN 0 AND 167),
    hour timestamptz NOT NULL,
    served bigint NOT NULL,
    refused bigint NOT NULL,
    PRIMARY KEY (tenant_id, slot)
) WITH (fillfactor = 80);
