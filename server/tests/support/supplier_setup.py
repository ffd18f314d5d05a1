"""Suppliers and routes for a service that is about to be started, and databases of its own."""

import json
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.suppliers.configure import put_supplier, set_route
from dealer_server.operations.suppliers.describe import show_suppliers
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.store.tenants import data_key
from support import databases
from support.api_client import put_catalogue, test_settings

COST = 18_000


class Source(NamedTuple):
    """A supplier to be set up; settings as a Struct or by their names."""

    code: str
    kind: str
    settings: msgspec.Struct | Mapping[str, Any]


class SupplierSetup(NamedTuple):
    """The keys of the database, and by supplier the path its messages come to."""

    keys: DataKeys
    events: dict[str, str]


async def set_up(database_url: str, sources: Sequence[Source], routes: Mapping[str, Sequence[Hop]]) -> SupplierSetup:
    """Puts the test catalogue on sale, with these packages made by these suppliers."""
    database = await Database.open(database_url)
    try:
        await put_catalogue(database)
        async with database.connection() as connection:
            keys = await data_key.load(connection, test_settings(database_url).master_keys)
        for one in sources:
            text = json.dumps(one.settings) if isinstance(one.settings, dict) else msgspec.json.encode(one.settings)
            document = text.encode() if isinstance(text, str) else text
            await put_supplier(database, keys, one.code, one.kind, document, "http://ours", "test")
        for package, hops in routes.items():
            await set_route(database, package, hops, "test", clock.now)
        shown = await show_suppliers(database, keys)
    finally:
        await database.close()
    return SupplierSetup(keys, {one.code: one.events for one in shown})


def hop(code: str, sku: str, cost: int | None = COST) -> Hop:
    return Hop(code, sku, cost, None if cost is None else "USD")


@asynccontextmanager
async def fresh(postgres: str, template: str) -> AsyncIterator[str]:
    """A database of its own."""
    name = f"own_{secrets.token_hex(4)}"
    yield await databases.copy(postgres, name, template)
    await databases.drop(postgres, name)


def free_address() -> str:
    """An address for a server that is started later. Its port is none that the system gives to others meanwhile."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
