"""How does an operator set up a supplier that is called? Its settings, its status, its routes and its ICCIDs."""

import re
import secrets
from collections.abc import Sequence

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.catalogue.import_packages import with_route
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.suppliers.describe import visible_settings
from dealer_server.rules.esim import iccid
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import packages as package_store
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.suppliers import registry
from dealer_server.suppliers.chain.client import ChainSettings

_CODE = re.compile("[a-z0-9][a-z0-9:_-]{0,63}")


async def put_supplier(
    database: Database, keys: DataKeys, code: str, kind: str, settings: bytes, our_url: str, author: str
) -> None:
    """Adds a supplier, or replaces its settings (JSON). Workers use them within a second. `our_url`: the base URL of
    this service. Raises OperatorError."""
    if code in registry.BUILTIN:
        raise OperatorError(f"{code} is builtin: it needs no settings")
    if _CODE.fullmatch(code) is None:
        raise OperatorError(f"{code!r}: a code is 1 to 64 of a-z, 0-9, :, _ and -")
    try:
        parsed = registry.read(kind, settings)
    except registry.BadSettings as error:
        raise OperatorError(str(error)) from None
    if isinstance(parsed, ChainSettings):
        if parsed.base_url.rstrip("/") == our_url.rstrip("/"):
            raise OperatorError("settings of a chain: baseUrl is this service's own address; an order would never end")
        parsed = msgspec.structs.replace(parsed, mark=keys.derive(b"chain mark")[:4].hex())

    async def work(connection: Connection) -> None:
        document, token = msgspec.json.encode(parsed), secrets.token_urlsafe(24)
        await store.supplier.put(connection, keys, code, kind, document, token)
        detail = {"code": code, "kind": kind, "settings": visible_settings(parsed)}
        await record_act(connection, author, "supplier.set", None, detail)

    await database.run(work)


async def set_supplier_status(database: Database, code: str, status: str, author: str) -> None:
    """ACTIVE, or PAUSED: nothing new is bought. Raises OperatorError."""

    async def work(connection: Connection) -> None:
        if not await store.supplier.set_status(connection, code, status):
            raise OperatorError(f"no supplier {code}")
        await record_act(connection, author, "supplier.status", None, {"code": code, "after": {"status": status}})

    await database.run(work)


async def set_route(database: Database, package_code: str, hops: Sequence[Hop], author: str, clock: Clock) -> None:
    """Sets which suppliers make a package's eSIMs, in order of preference. Raises OperatorError."""
    if not hops or len({hop.supplier for hop in hops}) < len(hops):
        raise OperatorError("a route names at least one supplier, each once")

    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)  # first, as every write of the catalogue does
        _require_suppliers(hops, [*await store.supplier.codes(connection), STOCK])
        packages = await package_store.lock(connection, [package_code])
        if package_code not in packages:
            raise OperatorError(f"no package {package_code}")
        before = await store.purchase.routes(connection, [package_code])
        await store.supplier.set_route(connection, package_code, hops)
        await store.package.put(connection, [with_route(packages[package_code], hops)], clock())
        detail = {"package": package_code, "before": before.get(package_code, []), "after": list(hops)}
        await record_act(connection, author, "supplier.route", None, detail)

    await database.run(work)


def _require_suppliers(hops: Sequence[Hop], codes: Sequence[str]) -> None:
    """Raises OperatorError."""
    for at, hop in enumerate(hops):
        if hop.supplier not in codes:
            raise OperatorError(f"no supplier {hop.supplier}; there are {', '.join(codes)}")
        if hop.supplier == STOCK and at:
            raise OperatorError("stock can only be the first of a route")


async def load_iccids(database: Database, code: str, sku: str, lines: Sequence[str], author: str) -> int:
    """Adds ICCIDs that an SM-DP+ has reserved for this service, all or none; how many are new. Raises OperatorError."""
    iccids: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                iccids.append(iccid.parse(line.strip()))
            except ValueError as error:
                raise OperatorError(f"line {number}: {error}") from None
    if not iccids:
        raise OperatorError("the file is empty; accepted: one ICCID a line")

    async def work(connection: Connection) -> int:
        if code not in await store.supplier.codes(connection):
            raise OperatorError(f"no supplier {code}")
        new = await store.supplier.load_iccids(connection, code, sku, iccids)
        await record_act(connection, author, "supplier.iccids", None, {"code": code, "sku": sku, "new": new})
        return new

    return await database.run(work)
