"""The database on several machines: Citus, by tenant (docs/decisions/0060-citus.md)."""
