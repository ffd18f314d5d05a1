-- The plans in use, by their end: what ends tomorrow is told today (docs/decisions/0035-notices.md).
CREATE INDEX profile_plan_end ON profile (plan_use_end_at) WHERE plan_use_status = 'STARTED' AND plan_use_end_at IS NOT NULL;
