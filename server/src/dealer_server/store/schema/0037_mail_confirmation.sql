-- An address that a user has given for notices and not confirmed yet; nothing but the link goes to it
-- (docs/decisions/0043-confirmed-addresses.md). Those in notice_setting are confirmed. nonce: what the link is derived
-- from; token_hash: SHA-256 of what the link holds.
CREATE TABLE mail_confirmation (
    user_id bigint PRIMARY KEY REFERENCES console_user ON DELETE CASCADE,
    mail text NOT NULL CHECK (mail <> ''),
    nonce bytea NOT NULL,
    token_hash bytea NOT NULL UNIQUE,
    expires_at timestamptz NOT NULL
);
