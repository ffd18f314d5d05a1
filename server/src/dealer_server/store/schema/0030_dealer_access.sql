-- How dealers and their people get in: several AppKeys with limits, and invitations (docs/decisions/0038-dealer-access.md).

-- name: what its dealer calls it. scopes: which operations it may call. ip_allow: from where, within the addresses of its
-- dealer; empty: from all of those. signs_webhooks: of a dealer's active AppKeys this one signs, else the oldest.
-- Constant defaults rewrite no row: AppKeys of before may do all they could, from where they could.
ALTER TABLE credential
    ADD COLUMN name text NOT NULL DEFAULT '' CHECK (length(name) <= 60),
    ADD COLUMN scopes text[] NOT NULL DEFAULT '{read,order,money}'
        CHECK (scopes <@ ARRAY['read', 'order', 'money'] AND cardinality(scopes) > 0),
    ADD COLUMN ip_allow text[] NOT NULL DEFAULT '{}',
    ADD COLUMN signs_webhooks boolean NOT NULL DEFAULT false;
UPDATE credential c SET signs_webhooks = true WHERE app_key = (
    SELECT app_key FROM credential o WHERE o.tenant_id = c.tenant_id ORDER BY status = 'ACTIVE' DESC, created_at DESC
    LIMIT 1);
CREATE UNIQUE INDEX credential_signs_webhooks ON credential (tenant_id) WHERE signs_webhooks;

-- What a dealer may change by itself.
ALTER TABLE tenant
    ADD COLUMN edits_ip_allow boolean NOT NULL DEFAULT false,
    ADD COLUMN manages_keys boolean NOT NULL DEFAULT false;

-- From where an AppKey was used, the newest few addresses of each; written about once a minute.
CREATE TABLE credential_use (
    app_key text NOT NULL REFERENCES credential,
    address text NOT NULL,
    used_at timestamptz NOT NULL,
    PRIMARY KEY (app_key, address)
);

-- Who is invited to the console and has not come yet, or came by this. tenant_id: as in console_user. token_hash: SHA-256
-- of what the link holds. mailed_at, mail_problem: of the last mail; both NULL: none was sent.
CREATE TABLE invitation (
    invitation_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint REFERENCES tenant,
    address text NOT NULL CHECK (address ~ '^[^[:space:][:cntrl:]]{1,100}$'),
    role text NOT NULL CHECK (role = ANY (
        CASE WHEN tenant_id IS NULL THEN ARRAY['admin', 'finance', 'support', 'readonly']
        ELSE ARRAY['admin', 'developer', 'finance'] END)),
    token_hash bytea NOT NULL UNIQUE,
    author text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    withdrawn_at timestamptz,
    mailed_at timestamptz,
    mail_problem text,
    CONSTRAINT used_or_withdrawn CHECK (used_at IS NULL OR withdrawn_at IS NULL)
);
CREATE UNIQUE INDEX invitation_open ON invitation (coalesce(tenant_id, 0), lower(address))
    WHERE used_at IS NULL AND withdrawn_at IS NULL;

-- A new dealer as far as an operator has filled it in; the dealer is made of it at once, and the draft is gone.
CREATE TABLE dealer_draft (
    draft_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    author text NOT NULL,
    fields json NOT NULL,
    updated_at timestamptz NOT NULL
);
