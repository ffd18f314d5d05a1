-- Which dealer a version of `change` is about, so that processes forget that dealer and no other. Each change takes away
-- the row of a thousand versions before; a process that missed more than that, or finds a version missing, forgets all.
CREATE TABLE tenant_change (
    version bigint PRIMARY KEY,
    tenant_id bigint NOT NULL
);

-- Orders that are not COMPLETED, by status: their number and their pages cost what they are, not what was ever sold.
CREATE INDEX orders_not_completed ON orders (tenant_id, order_status, order_id) WHERE order_status <> 'COMPLETED';
