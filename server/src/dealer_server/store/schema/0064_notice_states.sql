-- Compatible from: 40
-- Which notices to operators are of something that is over?

-- ended_at: when what an operator was told of was over; NULL while it lasts, and of notices to dealers.
ALTER TABLE notice ADD COLUMN ended_at timestamptz;
CREATE INDEX notice_open ON notice (notice_id) WHERE tenant_id = 0 AND ended_at IS NULL;
