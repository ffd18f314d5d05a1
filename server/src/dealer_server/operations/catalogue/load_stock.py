"""How do activation codes that an operator bought elsewhere get into stock? Whole files (docs/guides/stock.md)."""

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
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.suppliers.stock import Loaded

TRIES = 3


class StockReport(msgspec.Struct, frozen=True, rename="camel"):
    """`loaded`: all profiles of the file or, where there is a fault, none; `free`: how many of the package can be sold
    then. A fault with line 0 is about the package, not about the file."""

    package_code: str
    loaded: int
    free: int | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


async def load_stock(database: Database, data_keys: DataKeys, package_code: str, text: str, author: str) -> StockReport:
    """Adds the profiles of a file to a package's stock, all or none."""
    file = stock_file.read(text)

    async def work(connection: Connection) -> StockReport:
        faults = (*await _package_faults(connection, package_code), *file.faults, *await _duplicates(connection, file))
        if faults:
            in_order = tuple(sorted(faults, key=lambda fault: fault.line))
            return StockReport(package_code, 0, None, in_order, file.warnings)
        free = await store.stock.load(connection, package_code, _loaded(file.profiles), data_keys)
        detail = {"packageCode": package_code, "loaded": len(file.profiles)}
        await record_act(connection, author, "stock.load", None, detail)
        return StockReport(package_code, len(file.profiles), free, (), file.warnings)

    for attempt in range(TRIES):
        try:
            return await database.run(work)
        except (store.stock.LoadedMeanwhile, asyncpg.DeadlockDetectedError):  # another load of the same profiles
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


async def _duplicates(connection: Connection, file: StockFile) -> list[Fault]:
    """The lines whose ICCID or code was loaded before, sold or not."""
    iccids, digests = await store.stock.clashes(connection, _loaded(file.profiles))
    column = stock_file.code_column(file.columns)
    return [
        Fault(profile.line, "iccid", f"{profile.iccid} was loaded before")
        for profile in file.profiles
        if profile.iccid in iccids
    ] + [Fault(profile.line, column, "was loaded before") for profile in file.profiles if profile.digest in digests]


def _loaded(profiles: Sequence[StockProfile]) -> list[Loaded]:
    return [Loaded(profile.iccid, profile.code.text, profile.digest) for profile in profiles]
