-- eSIMs that are suspended for a while.

-- suspended: by the latest word of it (rules/lifecycle/lifecycle.py). suspended_at: since when, where that was told.
ALTER TABLE profile ADD COLUMN suspended boolean NOT NULL DEFAULT false, ADD COLUMN suspended_at timestamptz;
-- NOT VALID: the columns are new, so there is nothing to check.
ALTER TABLE profile ADD CONSTRAINT suspended_since_it_is CHECK (suspended OR suspended_at IS NULL) NOT VALID;

-- The latest words that it is suspended, and that it is not.
ALTER TABLE profile_life ADD COLUMN suspended_word_at timestamptz, ADD COLUMN resumed_word_at timestamptz;

-- A dealer's act: to suspend a profile, or to end that. The acts on a profile are carried out one after the other.
-- WITHDRAWN: the opposite was asked for before the supplier was asked.
CREATE TABLE suspension (
    tenant_id bigint NOT NULL,
    profile_id bigint NOT NULL,
    suspension_id bigint GENERATED ALWAYS AS IDENTITY,
    order_id bigint NOT NULL,
    suspended boolean NOT NULL,
    supplier text NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz,
    claim bigint,
    claims integer NOT NULL DEFAULT 0,
    outcome text CHECK (outcome IN ('DONE', 'REFUSED', 'WITHDRAWN')),
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, profile_id, suspension_id),
    FOREIGN KEY (tenant_id, profile_id) REFERENCES profile,
    CONSTRAINT due_until_it_has_an_outcome CHECK ((due_at IS NULL) = (outcome IS NOT NULL)),
    CONSTRAINT finished_says_when CHECK ((finished_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX suspension_due ON suspension (supplier, due_at) WHERE due_at IS NOT NULL;
