-- Compatible from: 40
-- Where does a dealer sell? Its install pages and its mails to buyers lead there. '': not set.
ALTER TABLE brand ADD COLUMN sales_url text NOT NULL DEFAULT ''
    CHECK (sales_url ~ '^(https://.*)?$' AND length(sales_url) <= 512);
