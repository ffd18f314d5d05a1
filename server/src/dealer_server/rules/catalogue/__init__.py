"""What is for sale? The package, the places it is for, a generated catalogue, and the operator's CSV."""
