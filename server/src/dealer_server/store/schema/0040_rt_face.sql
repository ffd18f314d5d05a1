-- Compatible from: 39
-- The RT face (docs/decisions/0049-rt-face.md): how a dealer's clients of the RT family are let in, and where its events
-- go in the family's dialect. standard_headers: webhooks carry the headers of standard-webhooks beside ours.
ALTER TABLE tenant ADD COLUMN rt_face text NOT NULL DEFAULT 'off' CHECK (rt_face IN ('off', 'signed', 'access-code'));
ALTER TABLE webhook_endpoint
    ADD COLUMN rt_url text NOT NULL DEFAULT '',
    ADD COLUMN rt_state text NOT NULL DEFAULT 'NOT_SET' CHECK (rt_state IN ('ACTIVE', 'DISABLED', 'NOT_SET')),
    ADD COLUMN standard_headers boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT rt_set_means_a_url CHECK ((rt_url = '') = (rt_state = 'NOT_SET'));

-- Until which end of theirs plans were looked at, to tell of them a day before (webhooks/rt_validity.py).
CREATE TABLE rt_validity (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    told_until timestamptz NOT NULL
);
INSERT INTO rt_validity (told_until) VALUES (now() + interval '1 day');
