-- A recharge adds a plan to an eSIM that was sold before (docs/decisions/0030-recharges.md). It is a row of `profile`
-- without codes: `recharges` is the profile_id of the eSIM, plan_no counts its plans from 1, the one it was sold with.
-- plan_mode: how its supplier added the plan; it is set once that is done.
ALTER TABLE profile ADD COLUMN recharges bigint, ADD COLUMN plan_no smallint NOT NULL DEFAULT 1,
    ADD COLUMN plan_mode text CHECK (plan_mode IN ('ADD', 'QUEUE'));
ALTER TABLE profile DROP CONSTRAINT delivered_with_codes;
ALTER TABLE profile ADD CONSTRAINT delivered_with_codes CHECK (
    lifecycle_status IN ('PENDING', 'CANCELLED') OR iccid IS NOT NULL OR plan_mode IS NOT NULL) NOT VALID;
ALTER TABLE profile ADD CONSTRAINT recharges_have_no_codes CHECK (
    CASE WHEN recharges IS NULL THEN plan_no = 1 AND plan_mode IS NULL ELSE plan_no > 1 AND iccid IS NULL END) NOT VALID;
CREATE UNIQUE INDEX profile_recharges ON profile (tenant_id, recharges, plan_no) WHERE recharges IS NOT NULL;

-- The eSIM that a line recharges, and its order, which is locked with that of the recharge.
ALTER TABLE order_item ADD COLUMN recharges bigint, ADD COLUMN recharges_order_id bigint;

-- Purchases of recharges have no ICCID.
ALTER TABLE purchase ADD COLUMN recharges bigint;
ALTER TABLE purchase DROP CONSTRAINT bought_has_an_iccid;
ALTER TABLE purchase ADD CONSTRAINT bought_has_an_iccid CHECK (
    state <> 'DONE' OR iccid IS NOT NULL OR recharges IS NOT NULL) NOT VALID;

-- live_status, live_at: the furthest word that does not say that the plan is over. added_bytes: the volume of each
-- recharge, 0 where it is unlimited. recharged_at: when the last one was applied.
ALTER TABLE profile_life ADD COLUMN live_status text, ADD COLUMN live_at timestamptz,
    ADD COLUMN added_bytes bigint[] NOT NULL DEFAULT '{}', ADD COLUMN recharged_at timestamptz;
