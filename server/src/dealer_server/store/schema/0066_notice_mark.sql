-- Compatible from: 40
-- Which notices has a user read?

-- read_to: up to this notice all are read. opened: those after it that were opened. Without a row: those from before the
-- user was made are read.
CREATE TABLE notice_mark (
    user_id bigint PRIMARY KEY REFERENCES console_user ON DELETE CASCADE,
    read_to bigint NOT NULL,
    opened bigint[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 80);

INSERT INTO notice_mark (user_id, read_to)
SELECT user_id, (SELECT coalesce(max(notice_id), 0) FROM notice n WHERE n.tenant_id = coalesce(u.tenant_id, 0))
FROM console_user u;
