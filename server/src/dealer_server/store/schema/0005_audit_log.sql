-- Where an act came from; and a log from which nothing can be taken without a trace.

-- source: the terminal or the address that the author acted from.
-- hash: of this act and of the hash before it, so that an act changed or taken out breaks the chain behind it.
ALTER TABLE audit_log ADD COLUMN source text, ADD COLUMN hash bytea;

-- The end of the chain: acts taken off it are missed here. The act that is written holds this row until it is committed.
CREATE TABLE audit_head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    acts bigint NOT NULL,
    hash bytea NOT NULL
);

GRANT UPDATE ON audit_log TO CURRENT_USER;
WITH RECURSIVE act AS (
    SELECT row_number() OVER (ORDER BY audit_id) AS number, audit_id, convert_to(jsonb_build_array(
        (extract(epoch FROM at) * 1000000)::bigint, author, source, action, tenant_id, detail)::text, 'UTF8') AS content
    FROM audit_log
), chain AS (
    SELECT number, audit_id, sha256(content) AS hash FROM act WHERE number = 1
    UNION ALL SELECT act.number, act.audit_id, sha256(chain.hash || act.content)
    FROM chain JOIN act ON act.number = chain.number + 1
)
UPDATE audit_log SET hash = chain.hash FROM chain WHERE audit_log.audit_id = chain.audit_id;
REVOKE UPDATE ON audit_log FROM CURRENT_USER;
ALTER TABLE audit_log ALTER COLUMN hash SET NOT NULL;

INSERT INTO audit_head (acts, hash)
SELECT count(*), coalesce((SELECT hash FROM audit_log ORDER BY audit_id DESC LIMIT 1), '') FROM audit_log;
