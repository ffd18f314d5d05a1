"""Can the service be brought back from this backup? Its schema, whether the sealing keys open it, and the audit."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import CannotOpen, MasterKeys
from dealer_server.operations.audit.check_invariants import StepDone, check_invariants
from dealer_server.store import schema
from dealer_server.store.audit import secrets
from dealer_server.store.audit.stored import Stored, stored

CANARIES = 20
Begin = Callable[[str], AbstractContextManager[StepDone]]
"""Told of each part as it begins; told of its steps, where it has some."""


class BackupReport(msgspec.Struct, frozen=True, rename="camel"):
    """`migrated`: the migrations that the backup lacked, applied to it here as `migrate` would after a restore.
    `canaries`: how many secrets were opened before the audit, which opens all. `problems`: why the service cannot be
    brought back from it. `seconds`: of each part."""

    orders: int
    newest_order_at: datetime | None
    migration: int
    migrated: list[int]
    canaries: int
    violated: list[str]
    log_head: str
    problems: list[str]
    seconds: dict[str, float]


def _silent(_: str) -> AbstractContextManager[StepDone]:
    return nullcontext(lambda steps: None)


async def check_backup(
    address: str, keys: MasterKeys, now: Callable[[], datetime], begin: Begin = _silent
) -> BackupReport:
    """Checks a restored database, which nothing else uses: it may be changed. Raises DatabaseLost, NewerSchema where it
    is of a newer version, OperatorError."""
    seconds: dict[str, float] = {}
    problems: list[str] = []
    database = await Database.open(address)
    try:
        with begin("schema"):
            began = time.monotonic()
            async with database.connection() as connection:
                migrated = [one.number for one in await schema.migrate(connection)]
                found = await stored(connection)
            seconds["schema"] = _since(began)
        with begin("sealing keys"):
            began = time.monotonic()
            canaries, unopened = await _open_canaries(database, keys)
            seconds["sealingKeys"] = _since(began)
        if unopened:
            problems.append(f"DEALER_SEALING_KEYS does not open it: {unopened}")
        elif not canaries:
            problems.append("it holds no secret: it is not a database that was in use")
        with begin("audit") as step_done:
            began = time.monotonic()
            report = await check_invariants(database, None if unopened else keys, None, now(), step_done=step_done)
            seconds["audit"] = _since(began)
        problems += [f"{code} {report[code].title}: {report[code].violations} violations" for code in report.violated]
        return _report(found, migrated, canaries, list(report.violated), report.log_head, problems, seconds)
    finally:
        await database.close()


def _report(
    found: Stored,
    migrated: list[int],
    canaries: int,
    violated: list[str],
    log_head: str,
    problems: list[str],
    seconds: dict[str, float],
) -> BackupReport:
    newest = schema.known()[-1].number
    return BackupReport(
        found.orders, found.newest_order_at, newest, migrated, canaries, violated, log_head, problems, seconds
    )


async def _open_canaries(database: Database, keys: MasterKeys) -> tuple[int, str]:
    """How many secrets open, and why one does not; those that a master key seals."""
    opened = 0
    async with database.connection() as connection, connection.transaction():
        for kind in (secrets.DATA_KEYS, *secrets.SECRETS):
            if not kind.by_master_key:
                continue
            for sealed, context in await _some(connection, kind):
                try:
                    keys.open(sealed, context)
                except CannotOpen as error:
                    return opened, f"{kind.what} is {error}"
                opened += 1
    return opened, ""


async def _some(connection: Connection, kind: secrets.Secrets) -> list[tuple[bytes, bytes]]:
    """Sealed values, each with the context of its row."""
    async for rows in secrets.sealed(connection, kind, None):
        found = [tuple(row.values()) for row in rows[:CANARIES]]
        return [(sealed, kind.context(*arguments)) for *arguments, sealed in found]
    return []


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)
