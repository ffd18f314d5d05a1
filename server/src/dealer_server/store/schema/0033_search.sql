-- Searching, and what a user of the console keeps (docs/decisions/0041-search.md).

-- The texts by which orders of all dealers are found by a part of them, some hundred to a row: one line each, the newest
-- first, of transactionId and remark in small letters with a tab between them; order_ids and tenant_ids in the same order.
-- The worker writes them some time after the orders. A row is not larger than a block, and its text stays in it: what is
-- read in full is read in order.
CREATE TABLE search_page (
    first_order_id bigint PRIMARY KEY,
    order_ids bigint[] NOT NULL,
    tenant_ids bigint[] NOT NULL,
    lines text COLLATE "C" NOT NULL
) WITH (toast_tuple_target = 8160);
ALTER TABLE search_page ALTER COLUMN lines SET STORAGE EXTERNAL;

-- Orders before this id stand in search_page.
CREATE TABLE search_progress (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    reached bigint NOT NULL DEFAULT 0
);
INSERT INTO search_progress DEFAULT VALUES;

-- eSIMs are found by the last digits of their ICCID: what a traveller reads out.
CREATE INDEX profile_iccid_reversed ON profile (reverse(iccid) text_pattern_ops) WHERE iccid IS NOT NULL;

-- The filters of a list that a user gave a name.
CREATE TABLE console_view (
    view_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES console_user ON DELETE CASCADE,
    path text NOT NULL,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 40),
    query text NOT NULL,
    UNIQUE (user_id, path, name)
);

-- What a user had entered in a form when the session ended, sealed, until it is shown in that form again.
CREATE TABLE console_kept_form (
    user_id bigint PRIMARY KEY REFERENCES console_user ON DELETE CASCADE,
    sealed bytea NOT NULL,
    until timestamptz NOT NULL
);
