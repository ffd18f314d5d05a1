-- Price lists: what dealers pay, set once for all who have the list.

-- basis: what the markup is added to, the package's own price or what its first supplier asks. Where that is not known, the
-- package costs its own price. Changes of a list and of its exceptions count as changes of the catalogue.
CREATE TABLE price_list (
    price_list_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name <> ''),
    basis text NOT NULL DEFAULT 'PRICE' CHECK (basis IN ('PRICE', 'COST')),
    markup_basis_points integer NOT NULL DEFAULT 0 CHECK (markup_basis_points BETWEEN -9999 AND 1000000),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Packages whose price on a list does not follow its markup; NULL: not on sale for its dealers.
CREATE TABLE price_list_exception (
    price_list_id bigint NOT NULL REFERENCES price_list ON DELETE CASCADE,
    package_code text NOT NULL REFERENCES package,
    price bigint CHECK (price > 0),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (price_list_id, package_code)
);

-- NULL: the dealer has no list, and the markup of its own holds. With a list that markup is 0.
ALTER TABLE tenant ADD COLUMN price_list_id bigint REFERENCES price_list;
ALTER TABLE tenant ADD CONSTRAINT a_list_or_a_markup CHECK (price_list_id IS NULL OR markup_basis_points = 0);
CREATE INDEX tenant_price_list ON tenant (price_list_id, tenant_id) WHERE price_list_id IS NOT NULL;

-- Who pays a price of its own for a package?
CREATE INDEX price_of_package ON price (package_code, tenant_id);

-- The cost that lists count from: as an operator set the route, or an import of the supplier's catalogue. A cost that a worker
-- accepts later changes `cost` alone, so that no dealer's price moves by itself.
ALTER TABLE route ADD COLUMN agreed_cost bigint CHECK (agreed_cost >= 0);
ALTER TABLE route ADD COLUMN agreed_at timestamptz NOT NULL DEFAULT now();
UPDATE route SET agreed_cost = cost;
