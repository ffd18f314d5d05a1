-- Where the next incremental audit goes on (docs/decisions/0028-incremental-audit.md).

-- The last audit that found nothing: the time of its snapshot, and the end of the audit log in it.
CREATE TABLE audit_checkpoint (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    at timestamptz NOT NULL,
    acts bigint NOT NULL,
    last_act bigint NOT NULL,
    hash bytea NOT NULL
);

-- The wallets in that snapshot: entries, orders and profiles since then are counted on from here.
CREATE TABLE audit_checkpoint_wallet (
    tenant_id bigint PRIMARY KEY,
    version bigint NOT NULL,
    balance bigint NOT NULL,
    order_count bigint NOT NULL,
    profile_count bigint NOT NULL
);

-- The orders with unfinished work in that snapshot: what ends does not always leave a time that an index finds.
CREATE TABLE audit_checkpoint_order (
    tenant_id bigint NOT NULL,
    order_id bigint NOT NULL,
    PRIMARY KEY (tenant_id, order_id)
);
