-- An index that begins with tenant_id can stand in for every other one that does. While a table has no statistics PostgreSQL
-- took the one of the transactionIds to find orders by their number, and read all orders of the dealer for each of them.
ALTER TABLE orders DROP CONSTRAINT orders_tenant_id_transaction_id_key;
ALTER TABLE orders ADD CONSTRAINT orders_transaction_id_tenant_id_key UNIQUE (transaction_id, tenant_id);
