-- What of the price must be left where a package is bought from a supplier, in hundredths of a percent, for packages that have
-- a floor of their own (docs/decisions/0036-margin-floor.md).
CREATE TABLE route_terms (
    package_code text PRIMARY KEY REFERENCES package,
    margin_floor_basis_points integer NOT NULL CHECK (margin_floor_basis_points BETWEEN 0 AND 10000)
);

-- A supplier's latest calls, its error rate, and the packages that it makes.
CREATE INDEX supplier_call_latest ON supplier_call (supplier, sent_at);
CREATE INDEX route_supplier ON route (supplier, package_code);
