-- Compatible from: 40
-- The link by which a user who forgot the password chooses another (docs/decisions/0071-forgotten-passwords.md). nonce: what
-- the link is derived from; token_hash: SHA-256 of what it holds.
CREATE TABLE password_reset (
    user_id bigint PRIMARY KEY REFERENCES console_user ON DELETE CASCADE,
    nonce bytea NOT NULL,
    token_hash bytea NOT NULL UNIQUE,
    expires_at timestamptz NOT NULL
);
