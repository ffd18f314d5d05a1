-- What the console's overview says of all dealers without counting it anew (docs/decisions/0042-overview.md).

-- One row. at: when a worker looked last, about once a minute.
CREATE TABLE worker_seen (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- An hour that is over, counted once by a worker. turnover: amounts of orders in ten-thousandths, by currency. attempts:
-- webhooks posted, answered: those with success. reads, writes: calls of the API by how long they took
-- (rules/access/latency_histogram.py), failed: those with a fault of ours.
CREATE TABLE overview_hour (
    start timestamptz PRIMARY KEY,
    orders bigint NOT NULL,
    turnover json NOT NULL,
    attempts bigint NOT NULL,
    answered bigint NOT NULL,
    reads bigint[] NOT NULL,
    writes bigint[] NOT NULL,
    failed bigint NOT NULL
);
