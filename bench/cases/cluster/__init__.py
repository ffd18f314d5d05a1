"""Orders on a cluster of Citus."""
