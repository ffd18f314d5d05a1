-- Compatible from: 40
-- A dealer reads who got an eSIM: the address of its buyer stays after the mail was sent, until the sweep deletes its row.
ALTER TABLE buyer_mail DROP CONSTRAINT address_until_it_is_finished;
CREATE INDEX buyer_mail_of_order ON buyer_mail (tenant_id, order_id, mail_id);
CREATE INDEX buyer_mail_to ON buyer_mail (tenant_id, lower(mail), order_id);

ALTER TABLE retention DROP CONSTRAINT retention_kind_check;
INSERT INTO retention (kind, deleted_before) VALUES ('buyer_mail', '2020-01-01Z');
DO $$ BEGIN
    EXECUTE format('ALTER TABLE retention ADD CONSTRAINT retention_kind_check CHECK (kind IN (%s))',
        (SELECT string_agg(quote_literal(kind), ', ' ORDER BY kind) FROM retention));
END $$;
