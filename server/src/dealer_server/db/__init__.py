"""PostgreSQL: connections, sessions, batches, sealed values. No statement of ours stands here."""
