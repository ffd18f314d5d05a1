"""Loading activation codes an operator bought elsewhere (docs/guides/stock.md): the whole file or nothing."""

from collections.abc import Sequence

import asyncpg
import msgspec

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.rules.catalogue import stock_file
from dealer_server.rules.catalogue.importing import Fault
from dealer_server.rules.catalogue.stock_file import StockFile, StockProfile
from dealer_server.rules.orders.order import STOCK
from dealer_server.store.suppliers.stock import Loaded

TRIES = 3


class Report(msgspec.Struct, frozen=True):
    """What a load did. `loaded` is all profiles of the file or, where there is a fault, none; `free` is how many of the
    package can be sold then. A fault with line 0 is about the package, not about the file."""

    package_code: str
    loaded: int
    free: int | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


async def load_stock(database: Database, data_keys: DataKeys, package_code: str, text: str, author: str) -> Report:
    """Reads a file and adds its profiles to a package's stock, all or nothing. Processes need not be told."""
    file = stock_file.read(text)

    async def work(connection: Connection) -> Report:
        faults = (*await _package_faults(connection, package_code), *file.faults, *await _clashes(connection, file))
        if faults:
            return Report(package_code, 0, None, _sorted(faults), file.warnings)
        free = await store.stock.load(connection, package_code, _loaded(file.profiles), data_keys)
        detail = {"packageCode": package_code, "loaded": len(file.profiles)}
        await store.audit_log.record_act(connection, author, "stock.load", None, detail)
        return Report(package_code, len(file.profiles), free, (), file.warnings)

    for attempt in range(TRIES):
        try:
            return await database.run(work)
        except (
            store.stock.LoadedMeanwhile,
            asyncpg.DeadlockDetectedError,
        ):  # the same profiles, right now: look again
            if attempt == TRIES - 1:
                raise
    raise AssertionError


async def _package_faults(connection: Connection, package_code: str) -> list[Fault]:
    supplier = await store.stock.supplier_of(connection, package_code)
    if supplier is None:
        return [Fault(0, "", f"there is no package {package_code}")]
    if supplier != STOCK:
        return [Fault(0, "", f"package {package_code} is not sold from stock: its supplier is {supplier}")]
    return []


async def _clashes(connection: Connection, file: StockFile) -> list[Fault]:
    """What is in stock already, sold or not."""
    iccids, digests = await store.stock.clashes(connection, _loaded(file.profiles))
    faults = [
        Fault(one.line, "iccid", f"{one.iccid} was loaded before") for one in file.profiles if one.iccid in iccids
    ]
    column = stock_file.code_column(file.columns)
    return faults + [Fault(one.line, column, "was loaded before") for one in file.profiles if one.digest in digests]


def _loaded(profiles: Sequence[StockProfile]) -> list[Loaded]:
    return [Loaded(one.iccid, one.code.text, one.digest) for one in profiles]


def _sorted(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.line))
