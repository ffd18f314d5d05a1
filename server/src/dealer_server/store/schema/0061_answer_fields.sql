-- Compatible from: 40
-- What else did an endpoint say when it refused a webhook? answer_fields: the header of the response, one field a line, of
-- attempts that failed.
ALTER TABLE webhook_attempt ADD COLUMN answer_fields text;
