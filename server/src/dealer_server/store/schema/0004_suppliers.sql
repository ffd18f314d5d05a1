-- Suppliers that are called over a network, what was bought from them, and the life of what was delivered.

-- Whom we buy from. settings: the kind's settings (suppliers/registry.py) as JSON, sealed whole, as they hold secrets.
-- event_token: the secret part of the address its messages come to.
CREATE TABLE supplier (
    code text PRIMARY KEY CHECK (code ~ '^[a-z0-9][a-z0-9:_-]{0,63}$'),
    kind text NOT NULL,
    status text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'PAUSED')),
    settings bytea NOT NULL,
    event_token text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Who may make a package's eSIMs, in order of preference (position 0 first), under which name and at which cost.
CREATE TABLE route (
    package_code text NOT NULL REFERENCES package,
    position smallint NOT NULL CHECK (position BETWEEN 0 AND 9),
    supplier text NOT NULL,
    sku text NOT NULL,
    cost bigint CHECK (cost >= 0),
    cost_currency text,
    PRIMARY KEY (package_code, position),
    UNIQUE (package_code, supplier),
    CONSTRAINT a_cost_has_a_currency CHECK ((cost IS NULL) = (cost_currency IS NULL))
);

-- ICCIDs that an SM-DP+ has put aside for us, by its profile type (sku). A taken one never comes back.
CREATE TABLE iccid_range (
    supplier text NOT NULL REFERENCES supplier,
    sku text NOT NULL,
    iccid text NOT NULL,
    taken_by text,
    PRIMARY KEY (supplier, iccid)
);
CREATE INDEX iccid_range_free ON iccid_range (supplier, sku, iccid) WHERE taken_by IS NULL;

-- One unit at one supplier: what is asked for, and what is known. Claiming it is the write-ahead: SENT is committed before
-- the call, so that SENT with its lease run out means that nobody knows what came of the call.
-- PLANNED nothing asked yet · SENT a call is under way, or was when its worker died · PENDING the supplier is at it ·
-- UNKNOWN no answer that counts · PARKED unknown for too long: an operator says what became of it · DONE bought ·
-- REJECTED surely not bought here (`position` tells the next on the route) · DROPPED never asked for, not wanted any more ·
-- WRITTEN_OFF bought and paid for, but nobody's.
CREATE TABLE purchase (
    tenant_id bigint NOT NULL,
    profile_id bigint NOT NULL,
    position smallint NOT NULL,
    order_id bigint NOT NULL,
    line smallint NOT NULL,
    unit_key text NOT NULL,
    supplier text NOT NULL,
    sku text NOT NULL,
    cost bigint,
    cost_currency text,
    state text NOT NULL DEFAULT 'PLANNED' CHECK (state IN ('PLANNED', 'SENT', 'PENDING', 'UNKNOWN', 'PARKED', 'DONE',
        'REJECTED', 'DROPPED', 'WRITTEN_OFF')),
    step text NOT NULL DEFAULT '',
    planned_iccid text,
    planned_matching_id text,
    supplier_ref text,
    unit_ref text,
    iccid text,
    -- What an operator found out about a parked one, sealed as it may hold an activation code.
    verdict bytea,
    calls integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    unknown_since timestamptz,
    reason text,
    due_at timestamptz,
    claim bigint,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, profile_id, position),
    FOREIGN KEY (tenant_id, profile_id) REFERENCES profile,
    CONSTRAINT due_while_it_is_open CHECK ((due_at IS NOT NULL) = (state IN ('PLANNED', 'SENT', 'PENDING', 'UNKNOWN'))),
    CONSTRAINT bought_has_an_iccid CHECK (state <> 'DONE' OR iccid IS NOT NULL)
);
CREATE INDEX purchase_due ON purchase (supplier, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX purchase_parked ON purchase (supplier) WHERE state = 'PARKED';
CREATE INDEX purchase_ref ON purchase (supplier, supplier_ref) WHERE supplier_ref IS NOT NULL;
CREATE INDEX purchase_unit ON purchase (supplier, unit_key);
CREATE UNIQUE INDEX purchase_iccid ON purchase (supplier, iccid) WHERE iccid IS NOT NULL;

-- Each call that may buy, find or void an eSIM, written before it is made. answered_at NULL: no answer was recorded.
CREATE TABLE supplier_call (
    tenant_id bigint NOT NULL,
    profile_id bigint NOT NULL,
    position smallint NOT NULL,
    number integer NOT NULL,
    supplier text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('ALLOCATE', 'PROBE')),
    step text NOT NULL,
    sent_at timestamptz NOT NULL,
    answered_at timestamptz,
    outcome text,
    message text,
    PRIMARY KEY (tenant_id, profile_id, position, number),
    FOREIGN KEY (tenant_id, profile_id, position) REFERENCES purchase
);

-- What suppliers told us, each message once. state UNKNOWN: of no eSIM we know, or of a kind we do not understand.
CREATE TABLE supplier_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    supplier text NOT NULL,
    key bytea NOT NULL,
    kind text NOT NULL,
    state text NOT NULL CHECK (state IN ('APPLIED', 'ASKED', 'UNKNOWN')),
    body bytea NOT NULL,
    received_at timestamptz NOT NULL,
    UNIQUE (supplier, key)
);
CREATE INDEX supplier_event_received ON supplier_event USING brin (received_at) WITH (pages_per_range = 32);

-- The life of a delivered profile, beyond what its dealer sees. due_at: when time changes it, or its supplier is asked.
-- Times of what is shown decide between reports that come out of order (rules/lifecycle/lifecycle.py).
CREATE TABLE profile_life (
    tenant_id bigint NOT NULL,
    profile_id bigint NOT NULL,
    order_id bigint NOT NULL,
    line smallint NOT NULL,
    supplier text NOT NULL,
    iccid text NOT NULL,
    unused_until timestamptz,
    plan_seconds bigint,
    smdp_at timestamptz,
    esim_at timestamptz,
    ended_at timestamptz,
    valid_until timestamptz,
    eid text,
    reported_at timestamptz,
    asked_at timestamptz,
    created_at timestamptz NOT NULL,
    due_at timestamptz,
    claim bigint,
    claims integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, profile_id),
    FOREIGN KEY (tenant_id, profile_id) REFERENCES profile
);
-- Those that were delivered before.
INSERT INTO profile_life (tenant_id, profile_id, order_id, line, supplier, iccid, unused_until, plan_seconds, created_at,
    due_at)
SELECT p.tenant_id, p.profile_id, p.order_id, p.line, i.supplier, p.iccid, p.updated_at + terms.unused,
    terms.plan_seconds * i.period_num, p.updated_at, p.updated_at + terms.unused
FROM profile p JOIN order_item i USING (tenant_id, order_id, line)
JOIN (SELECT package_code, (document ->> 'unused_valid_days')::int * interval '1 day' AS unused,
    (document ->> 'duration')::bigint * 86400 AS plan_seconds FROM package) terms USING (package_code)
WHERE p.iccid IS NOT NULL AND NOT p.cancelled AND i.supplier <> 'stock';
CREATE INDEX profile_life_due ON profile_life (supplier, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX profile_life_iccid ON profile_life (supplier, iccid);
