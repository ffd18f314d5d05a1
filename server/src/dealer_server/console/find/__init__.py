"""Finding one's way: search, type-ahead fields, and saved views."""
