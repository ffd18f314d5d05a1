"""PostgreSQL: connections, sessions, batches, sealed values. The statements are in store/."""
