-- What a dealer shows of itself on its install pages (docs/decisions/0034-install-page.md). '' and NULL: not set. colour:
-- #rrggbb. A dealer without a row has no brand.
CREATE TABLE brand (
    tenant_id bigint PRIMARY KEY REFERENCES tenant,
    name text NOT NULL DEFAULT '' CHECK (length(name) <= 60),
    colour text NOT NULL DEFAULT '' CHECK (colour ~ '^(#[0-9a-f]{6})?$'),
    support_email text NOT NULL DEFAULT '' CHECK (length(support_email) <= 254),
    support_phone text NOT NULL DEFAULT '' CHECK (length(support_phone) <= 32),
    support_url text NOT NULL DEFAULT '' CHECK (support_url ~ '^(https://.*)?$' AND length(support_url) <= 512),
    logo_type text CHECK (logo_type IN ('image/png', 'image/webp', 'image/svg+xml')),
    logo bytea CHECK (length(logo) <= 32768),
    CONSTRAINT logo_has_its_type CHECK ((logo IS NULL) = (logo_type IS NULL))
);
