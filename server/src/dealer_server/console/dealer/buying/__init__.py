"""A dealer buys in the console: the catalogue, one order by hand, many by a CSV file."""
