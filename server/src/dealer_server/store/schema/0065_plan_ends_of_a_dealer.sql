-- Compatible from: 40
-- A dealer lists its plans in use by their end (store/console/profiles.py).
CREATE INDEX profile_plan_end_of_dealer ON profile (tenant_id, plan_use_end_at, profile_id)
    WHERE plan_use_status = 'STARTED' AND plan_use_end_at IS NOT NULL;
