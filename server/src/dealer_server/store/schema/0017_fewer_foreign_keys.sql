-- The statements that write these rows write their parents too, or have just locked them. PostgreSQL looked each parent up
-- and locked it again for every row, which was a third of its work for an order. `audit` reports rows without a parent.
ALTER TABLE orders DROP CONSTRAINT orders_tenant_id_fkey;
ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_tenant_id_fkey;
ALTER TABLE order_item DROP CONSTRAINT order_item_tenant_id_order_id_fkey;
ALTER TABLE profile DROP CONSTRAINT profile_tenant_id_order_id_line_fkey;
ALTER TABLE profile_life DROP CONSTRAINT profile_life_tenant_id_profile_id_fkey;
ALTER TABLE stock_profile DROP CONSTRAINT stock_profile_taken_tenant_id_taken_by_fkey;
ALTER TABLE webhook_delivery DROP CONSTRAINT webhook_delivery_tenant_id_order_id_fkey;
ALTER TABLE webhook_attempt DROP CONSTRAINT webhook_attempt_tenant_id_delivery_id_fkey;
