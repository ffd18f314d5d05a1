-- A refund that could not be settled is tried again later, behind those that can be.
-- settle_failures: how often it failed so far; due_at says when it is tried again.
ALTER TABLE refund ADD COLUMN settle_failures integer NOT NULL DEFAULT 0;
