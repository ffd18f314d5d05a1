"""A dealer's own pages: each view reads and writes what belongs to the tenant of who signed in, and nothing else."""
