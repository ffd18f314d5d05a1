-- Who signs in to the console, where they are signed in, and how often signing in was tried.

-- tenant_id: whose person this is; NULL for an operator. Names are one for all, whatever their case.
-- password: argon2id in its encoded form. totp_step: the last step whose code was used, so that none works twice.
CREATE TABLE console_user (
    user_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint REFERENCES tenant,
    name text NOT NULL CHECK (name ~ '^[^[:space:][:cntrl:]]{1,100}$'),
    role text NOT NULL CHECK (role = ANY (
        CASE WHEN tenant_id IS NULL THEN ARRAY['admin', 'finance', 'support', 'readonly']
        ELSE ARRAY['admin', 'developer', 'finance'] END)),
    password text NOT NULL,
    status text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'DISABLED')),
    sealed_totp bytea,
    totp_on boolean NOT NULL DEFAULT false CHECK (NOT totp_on OR sealed_totp IS NOT NULL),
    totp_step bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    signed_in_at timestamptz
);
CREATE UNIQUE INDEX console_user_name ON console_user (lower(name));
CREATE INDEX console_user_tenant ON console_user (tenant_id);

-- A browser that is signed in; the token is known to it alone. complete: false while the one-time code is awaited.
-- sure_at: when the password was last given. said: what the next page shows once.
CREATE TABLE console_session (
    session_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token_hash bytea NOT NULL UNIQUE,
    user_id bigint NOT NULL REFERENCES console_user ON DELETE CASCADE,
    complete boolean NOT NULL,
    created_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    sure_at timestamptz NOT NULL,
    address text NOT NULL,
    agent text NOT NULL,
    said text NOT NULL DEFAULT '',
    said_failed boolean NOT NULL DEFAULT false
);
CREATE INDEX console_session_user ON console_session (user_id);
CREATE INDEX console_session_created ON console_session (created_at);

-- Tries to sign in, counted before the password is looked at, so that many at once are no more than one by one.
-- subject: the hash of a name, or of an address; nobody reads here which names were tried.
CREATE TABLE console_try (
    subject bytea PRIMARY KEY,
    tries integer NOT NULL,
    since timestamptz NOT NULL
);
CREATE INDEX console_try_since ON console_try (since);
