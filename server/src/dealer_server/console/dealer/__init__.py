"""A dealer's own pages: each view reads and writes what belongs to the dealer of the user, and nothing else."""
