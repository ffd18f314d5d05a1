-- Compatible from: 40
-- Where does a dealer sell? Its install pages and its mails to buyers lead there. '': not set.
ALTER TABLE brand ADD COLUMN shop_url text NOT NULL DEFAULT ''
    CHECK (shop_url ~ '^(https://.*)?$' AND length(shop_url) <= 512);
