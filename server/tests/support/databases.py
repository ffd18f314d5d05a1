"""Addresses of the databases of a test run."""

from urllib.parse import urlsplit, urlunsplit


def database_named(dsn: str, name: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))
