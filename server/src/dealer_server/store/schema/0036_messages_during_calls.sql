-- A supplier's message that comes while it is asked about the same purchase: it is asked again once the answer is
-- recorded, which may be older than the message.
ALTER TABLE purchase ADD COLUMN told boolean NOT NULL DEFAULT false;
