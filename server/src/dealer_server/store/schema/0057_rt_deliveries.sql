-- Compatible from: 40
-- Who has deliveries in the RT family's dialect? The others' own are counted by the primary key alone (store/webhooks/log.py).
-- Where there are millions of deliveries make it beforehand, CONCURRENTLY.
CREATE INDEX IF NOT EXISTS webhook_delivery_rt ON webhook_delivery (tenant_id) WHERE starts_with(event_type, 'RT_');
