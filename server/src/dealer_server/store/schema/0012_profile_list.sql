-- /esim/profile/list lists profiles that have their codes. Its total without filters is the wallet's count of profiles
-- less those that wait, which are in orders that are not over, and less these, which are few.
CREATE INDEX profile_void_without_codes ON profile (tenant_id) WHERE iccid IS NULL AND cancelled;
