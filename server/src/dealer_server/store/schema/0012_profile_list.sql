-- /esim/profile/list lists profiles that have their codes. Its total without filters is the wallet's count of profiles
-- less those in this index, which are few: what waits for delivery, and what was cancelled before it.
CREATE INDEX profile_without_codes ON profile (tenant_id) WHERE iccid IS NULL;
