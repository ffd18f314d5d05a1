-- Forms that act once, passwords that somebody else made, and what a dealer's first page remembers.

-- Forms of a session that were sent: each carries a value of its own, and does its work once however often it is sent.
CREATE TABLE console_form (
    session_id bigint NOT NULL REFERENCES console_session ON DELETE CASCADE,
    once_hash bytea NOT NULL,
    PRIMARY KEY (session_id, once_hash)
);

-- must_change: the password was made by somebody else, and opens one page alone: the one that changes it.
ALTER TABLE console_user ADD COLUMN must_change boolean NOT NULL DEFAULT false;

-- sealed_made: a password that was made for somebody, sealed; the session's next page of users shows it once, until then.
ALTER TABLE console_session ADD COLUMN sealed_made bytea, ADD COLUMN made_until timestamptz;

-- CREDENTIALS: somebody of the dealer has looked at its secret. LIVE: that all is done was read, and is shown no more.
ALTER TABLE first_run DROP CONSTRAINT first_run_step_check, ADD CONSTRAINT first_run_step_check
    CHECK (step IN ('HEALTH', 'BALANCE', 'WEBHOOK', 'CREDENTIALS', 'LIVE'));
