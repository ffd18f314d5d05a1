"""Fail-over for real: three PostgreSQL under Patroni lose their leader in every way, while dealers buy (README.md)."""
