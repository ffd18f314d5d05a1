-- Compatible from: 40
-- To whom the install pages of a line are mailed, and in which language; NULL: to nobody.
ALTER TABLE bulk_line ADD COLUMN mail text, ADD COLUMN language text;
-- purchase: it was written with the order that it is of, not by hand, and does not count among the mails of an hour.
ALTER TABLE buyer_mail ADD COLUMN purchase boolean NOT NULL DEFAULT false;
