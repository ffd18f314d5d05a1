"""Pages of the console with many orders stored, and what is kept for them."""
