-- Compatible from: 40
-- What users had entered in forms that were not carried out, sealed, each until its page shows it again: the session had
-- ended, somebody else had changed the same, or it was refused. Several tabs of a user may have one each; those of one page
-- are shown again in the order in which they were sent. It replaces console_kept_form, of which a user had one row: a program
-- of the release before still uses that.
CREATE TABLE console_unsent_form (
    form_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES console_user ON DELETE CASCADE,
    page text NOT NULL,
    sealed bytea NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX ON console_unsent_form (user_id, page, form_id);
