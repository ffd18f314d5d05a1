-- Compatible from: 40
-- How much data does an eSIM use on each day? daily_usage: [[day, bytes], …], the oldest first: the highest count that its
-- supplier reported on each of the newest days (rules/lifecycle/daily_usage.py); NULL while none was.
ALTER TABLE profile_life ADD COLUMN daily_usage jsonb;
