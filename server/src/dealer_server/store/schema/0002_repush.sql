-- Sending webhooks again, and holding back those that only tell of usage.

-- delivered_at: the first success. It stays when the delivery is sent again, so that the lane keeps its baseline.
-- not_before: an update that only tells of usage waits that long (at most one per order and quarter of an hour).
ALTER TABLE webhook_delivery ADD COLUMN delivered_at timestamptz, ADD COLUMN not_before timestamptz;
UPDATE webhook_delivery SET delivered_at = finished_at WHERE state = 'DELIVERED';
ALTER TABLE webhook_delivery ADD CONSTRAINT delivered_at_some_time
    CHECK (state <> 'DELIVERED' OR delivered_at IS NOT NULL);

-- One by one instead of in blocks per connection: lists of deliveries, newest first, are lists by id.
ALTER TABLE webhook_delivery ALTER COLUMN delivery_id SET CACHE 1;

-- Those sent again by hand pass an open breaker.
CREATE INDEX webhook_delivery_resent ON webhook_delivery (tenant_id) WHERE state = 'READY' AND trigger = 'RESEND';
CREATE INDEX webhook_delivery_failed ON webhook_delivery (tenant_id, delivery_id) WHERE state = 'FAILED';
CREATE INDEX webhook_delivery_created ON webhook_delivery USING brin (created_at) WITH (pages_per_range = 32);
CREATE INDEX webhook_attempt_started ON webhook_attempt USING brin (started_at) WITH (pages_per_range = 32);

-- An operator's order to send many again: RESEND the deliveries that were chosen, or SYNC the orders, one tenant at a time.
-- The worker goes through them by id, `reached` being the last one done, no faster than half of the tenant's cap in flight.
CREATE TABLE webhook_job (
    job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL REFERENCES tenant,
    kind text NOT NULL CHECK (kind IN ('RESEND', 'SYNC')),
    states text[] NOT NULL DEFAULT '{}',
    event_type text CHECK (event_type IN ('ORDER_PAID', 'DELIVERY_UPDATED', 'REFUND_COMPLETED')),
    start_at timestamptz NOT NULL,
    end_at timestamptz NOT NULL,
    total bigint NOT NULL,
    reached bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    author text NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz
);
CREATE INDEX webhook_job_running ON webhook_job (job_id) WHERE finished_at IS NULL;
