-- Compatible from: 40
-- When was a supplier down, for how long, and how much waited for it? A worker writes it as it checks suppliers.

-- ended_at: NULL while it is down. orders: that waited for it at once, at most. One failed check is none.
CREATE TABLE supplier_outage (
    code text NOT NULL REFERENCES supplier ON DELETE CASCADE,
    began_at timestamptz NOT NULL,
    ended_at timestamptz,
    detail text NOT NULL,
    orders integer NOT NULL DEFAULT 0,
    PRIMARY KEY (code, began_at)
);
-- By itself, as that of webhook_hour in migration 59.
DO $$ BEGIN EXECUTE 'CREATE UNIQUE INDEX supplier_outage_now ON supplier_outage (code) WHERE ended_at IS NULL'; END $$;

-- The page Emails lists the newest, and those that failed.
CREATE INDEX notice_delivery_newest ON notice_delivery (delivery_id) WHERE user_id IS NOT NULL;
CREATE INDEX notice_delivery_failed ON notice_delivery (delivery_id) WHERE user_id IS NOT NULL AND state = 'FAILED';
