-- Compatible from: 40
-- What operators write down about an order, for each other: its dealer never reads it. On a cluster
-- orders stand on other nodes than notes, so that no key refers to them.
CREATE TABLE order_note (
    tenant_id bigint NOT NULL,
    note_id bigint GENERATED ALWAYS AS IDENTITY,
    order_id bigint NOT NULL,
    author text NOT NULL,
    note text NOT NULL CHECK (length(note) BETWEEN 1 AND 2000),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, order_id, note_id)
);
