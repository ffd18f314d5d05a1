-- Suppliers sell an ICCID again once its eSIM is over (docs/decisions/0015-reused-iccids.md).

-- superseded: a later profile of this dealer has its ICCID, delivered before we heard that this one is over.
ALTER TABLE profile ADD COLUMN superseded boolean NOT NULL DEFAULT false;

-- One live profile per dealer and ICCID; the others stand behind it, the newest first (store/profiles/iccid.py).
DROP INDEX profile_iccid;
CREATE UNIQUE INDEX profile_iccid ON profile (tenant_id, iccid,
    (CASE WHEN cancelled OR plan_use_status = 'ENDED' OR superseded THEN profile_id ELSE 9223372036854775807 END))
    WHERE iccid IS NOT NULL;

-- An eSIM is bought once: by its supplier's own reference or, where the supplier has none (ES2+), by its ICCID.
DROP INDEX purchase_iccid;
CREATE UNIQUE INDEX purchase_unit_ref ON purchase (supplier, unit_ref) WHERE unit_ref IS NOT NULL;
CREATE UNIQUE INDEX purchase_iccid ON purchase (supplier, iccid)
    WHERE iccid IS NOT NULL AND unit_ref IS NULL AND supplier_ref IS NULL;
