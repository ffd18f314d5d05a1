"""Is the database consistent? The invariants A1 to A25 of the ledger, of orders and of the work behind them.

The check is read-only and runs on one snapshot, so the service can go on. It looks at everything, or at what changed
since a time or since the last check that found nothing (docs/decisions/0028-incremental-audit.md).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.distributed import is_distributed
from dealer_server.db.sealing import CannotOpen, DataKeys, MasterKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.store.audit import audit_log, checkpoint, excerpt, invariants, secrets
from dealer_server.store.audit.invariants import Violations

Row = Mapping[str, Any]

SECRETS_OPEN = "A19"
TITLES = invariants.TITLES | {SECRETS_OPEN: "every secret opens under a known key"}
CODES = sorted(TITLES, key=lambda code: int(code[1:]))


class Invariant(msgspec.Struct, frozen=True, rename="camel"):
    """The result for one invariant. Each sample names a row that violates it, and its `fault`; `note` says what was not
    `checked`."""

    code: str
    title: str
    checked: bool
    violations: int
    samples: Sequence[Row]
    note: str


class Covered(msgspec.Struct, frozen=True, rename="camel"):
    """What an incremental audit looked at: what is new or changed since a time. `from_checkpoint`: the last audit that
    found nothing was of that time. Orders, deliveries: all rows of them; entries: those of the ledger."""

    since: datetime
    from_checkpoint: bool
    orders: int
    entries: int
    deliveries: int


class AuditReport(msgspec.Struct, frozen=True, rename="camel"):
    """`tenant_id` None: of all tenants. `covered` None: everything was looked at. `checkpoint`: whether the next
    incremental audit goes on from this one. `violated`: the codes of the violated invariants. `log_head`: the hash over
    the `acts` of the audit log, in hex; kept elsewhere, it shows later whether one of them was changed."""

    at: datetime
    tenant_id: int | None
    covered: Covered | None
    checkpoint: bool
    violated: Sequence[str]
    invariants: Sequence[Invariant]
    acts: int
    log_head: str

    def __getitem__(self, code: str) -> Invariant:
        return next(invariant for invariant in self.invariants if invariant.code == code)


class Scope(msgspec.Struct, frozen=True):
    """What is audited: everything; `since` a time; or since the last checkpoint where `incremental`, and everything
    where there is none. `keep`: an audit that finds nothing becomes the next checkpoint, unless it is of one tenant or
    begins at a time."""

    tenant_id: int | None = None
    since: datetime | None = None
    incremental: bool = False
    keep: bool = False

    @property
    def proves_all(self) -> bool:
        return self.tenant_id is None and self.since is None


LOOKS_AGAIN, AGAIN_SECONDS = 3, 1.0
StepDone = Callable[[int], None]
"""Told how many steps there are in all, once for each that is done."""
EVERYTHING = Scope()
# A time says nothing of what the wallets had counted by then.
_NEED_CHECKPOINT = frozenset({"A22"})
# Sums of everything: an excerpt says nothing of them, and no later audit builds on them.
_NEED_EVERYTHING = frozenset({"A28"})
_OVERTAKEN = (asyncpg.SerializationError, asyncpg.UniqueViolationError)
_READ_ONLY = (asyncpg.ReadOnlySQLTransactionError, asyncpg.InsufficientPrivilegeError)


async def check_invariants(
    database: Database,
    master_keys: MasterKeys | None,
    data_keys: DataKeys | None,
    now: datetime,
    scope: Scope = EVERYTHING,
    seen: bytes | None = None,
    step_done: StepDone = lambda steps: None,
) -> AuditReport:
    """Checks every invariant.

    Secrets are opened only where their keys are given; without data keys, those that the master keys open are used.
    `seen`: the head of the audit log in an earlier report. Raises OperatorError.
    """
    async with _snapshot(database, incremental=scope.incremental or scope.since is not None) as connection:
        start = await _start(connection, scope)
        steps = (excerpt.step_count(start) if start else 0) + len(invariants.QUERIES) + len(secrets.SECRETS)
        audit = _Audit(connection, scope.tenant_id, now, lambda: step_done(steps))
        head = await audit_log.head(connection)
        if seen is not None and not await audit_log.has_act(connection, seen):
            audit.findings["A24"].add(
                "the log does not contain the head of the earlier report", [{"seen": seen.hex()}], 1
            )
        covered = await audit.take_excerpt(start) if start else None
        await audit.run_queries(start)
        await audit.open_secrets(master_keys, data_keys)
        results = [_invariant(code, audit.findings[code]) for code in CODES]
        clean = all((result.checked or result.code in _NEED_EVERYTHING) and not result.violations for result in results)
        kept = clean and scope.keep and scope.proves_all and await _keep(database, connection)
    return AuditReport(
        at=now,
        tenant_id=scope.tenant_id,
        covered=covered,
        checkpoint=kept,
        violated=[invariant.code for invariant in results if invariant.violations],
        invariants=results,
        acts=head.acts,
        log_head=head.hash.hex(),
    )


@asynccontextmanager
async def _snapshot(database: Database, *, incremental: bool) -> AsyncIterator[Connection]:
    """A transaction that sees one state of the database. It is read-only, from the start or, where it is incremental,
    once it has created its temporary tables. On a cluster each statement sees its own: Citus has no snapshot of all
    nodes."""
    isolation = "read_committed" if database.distributed else "repeatable_read"
    async with (
        database.connection() as connection,
        connection.transaction(isolation=isolation, readonly=not incremental),
    ):
        yield connection


async def _start(connection: Connection, scope: Scope) -> excerpt.Start | None:
    """Where an incremental audit begins; None where everything is looked at. Raises OperatorError."""
    if scope.since is not None:
        if is_distributed(connection):
            raise OperatorError("an audit of a distributed database looks at everything, without --since")
        return excerpt.Start(scope.since, None)
    if not scope.incremental or is_distributed(connection):
        return None
    last = await checkpoint.last(connection)
    return None if last is None else excerpt.Start(last.at, last)


async def _keep(database: Database, audited: Connection) -> bool:
    """Makes the audit's snapshot the next checkpoint. False where another audit has made a newer one meanwhile, and
    where nothing may be written: on a standby, or by a role that only reads."""
    snapshot = None if database.distributed else await checkpoint.export_snapshot(audited)
    if snapshot is None:
        return False
    async with database.connection() as connection:
        try:
            async with connection.transaction(isolation="repeatable_read"):
                await checkpoint.record(connection, snapshot)
        except (*_OVERTAKEN, *_READ_ONLY):
            return False
    return True


class _Audit:
    """One audit under way, on one snapshot."""

    def __init__(self, connection: Connection, tenant_id: int | None, now: datetime, step_done: Callable[[], None]):
        self._connection = connection
        self._tenant_id = tenant_id
        self._now = now
        self._step_done = step_done
        self.findings = {code: _Findings() for code in CODES}

    async def take_excerpt(self, start: excerpt.Start) -> Covered:
        await excerpt.create(self._connection)
        size = await excerpt.fill(self._connection, start, self._now, self._step_done)
        return Covered(start.at, start.checkpoint is not None, size.orders, size.entries, size.deliveries)

    async def run_queries(self, start: excerpt.Start | None) -> None:
        await invariants.prepare(self._connection, self._tenant_id)
        skipped = _NEED_CHECKPOINT if start and start.checkpoint is None else frozenset[str]()
        for code in skipped:
            self.findings[code].left_out.append("needs a checkpoint to count from")
        if start:
            for code in _NEED_EVERYTHING:
                self.findings[code].left_out.append("only an audit of everything adds up all days")
            skipped |= _NEED_EVERYTHING
        for query in invariants.QUERIES:
            if query.invariant not in skipped:
                sql = query.excerpt_sql if start else query.sql
                violations = await self._violations(sql)
                self.findings[query.invariant].add(query.fault, violations.rows, violations.total)
            self._step_done()

    async def _violations(self, sql: str) -> Violations:
        """On a cluster what is written meanwhile looks like a fault, which is gone at the next look."""
        looks = 1 + LOOKS_AGAIN if is_distributed(self._connection) else 1
        while True:
            found = await invariants.violations(self._connection, sql, self._tenant_id, self._now)
            looks -= 1
            if not found.total or not looks:
                return found
            await asyncio.sleep(AGAIN_SECONDS)

    async def open_secrets(self, master_keys: MasterKeys | None, data_keys: DataKeys | None) -> None:
        if data_keys is None and master_keys is not None:
            data_keys = await _open_data_keys(self._connection, master_keys)
        for kind in secrets.SECRETS:
            keys = master_keys if kind.by_master_key else data_keys
            await _open_all(self._connection, kind, keys, self._tenant_id, self.findings[SECRETS_OPEN])
            self._step_done()


class _Findings:
    """What was found of one invariant so far."""

    def __init__(self) -> None:
        self.violations = 0
        self.samples: list[Row] = []
        self.left_out: list[str] = []

    def add(self, fault: str, rows: Sequence[Row], total: int) -> None:
        self.violations += total
        self.samples += [{"fault": fault, **row} for row in rows[: invariants.SAMPLES - len(self.samples)]]


def _invariant(code: str, findings: _Findings) -> Invariant:
    note = "; ".join(findings.left_out)
    return Invariant(
        code=code,
        title=TITLES[code],
        checked=not note,
        violations=findings.violations,
        samples=findings.samples,
        note=note,
    )


async def _open_all(
    connection: Connection,
    kind: secrets.Secrets,
    keys: MasterKeys | DataKeys | None,
    tenant_id: int | None,
    findings: _Findings,
) -> None:
    """Opens every secret of one kind, a few thousand at a time. Where there is none, no key is needed: a new database
    has no data key."""
    async for chunk in secrets.sealed(connection, kind, tenant_id):
        if keys is None:
            findings.left_out.append(f"no key to open {kind.what}")
            return
        for row in chunk:
            *names, value = row
            if fault := _fault(keys, value, kind, names):
                named = dict(zip(row.keys(), names, strict=False))
                findings.add(f"{kind.what} does not open: {fault}", [named], 1)


def _fault(keys: MasterKeys | DataKeys, value: bytes, kind: secrets.Secrets, names: Sequence[Any]) -> str:
    """Why a sealed value does not open; "" where it does."""
    try:
        keys.open(value, kind.context(*names))
    except CannotOpen as error:
        if kind.former_context is None:
            return str(error)
        return _fault(keys, value, kind._replace(context=kind.former_context, former_context=None), names)
    except (ValueError, IndexError):
        return "it is truncated"
    return ""


async def _open_data_keys(connection: Connection, master_keys: MasterKeys) -> DataKeys | None:
    """The data keys that open; None where none does."""
    opened: dict[int, bytes] = {}
    async for chunk in secrets.sealed(connection, secrets.DATA_KEYS, None):
        for number, value in chunk:
            with suppress(CannotOpen, ValueError, IndexError):
                opened[number] = master_keys.open(value, secrets.DATA_KEYS.context(number))
    return DataKeys(opened) if opened else None


def report_json(report: AuditReport) -> str:
    content = msgspec.to_builtins(report)
    for invariant in content["invariants"]:
        invariant["samples"] = [{_camel(name): value for name, value in row.items()} for row in invariant["samples"]]
    return msgspec.json.encode(content).decode()


def report_text(report: AuditReport) -> str:
    """One line per invariant, and one per sample."""
    lines = [line for invariant in report.invariants for line in _lines(invariant)]
    count = len(report.violated)
    if report.covered:
        lines.append(_covered_text(report.covered))
    lines.append(f"audit log: {report.acts} acts, head {report.log_head}")
    return "\n".join([*lines, f"{count} violated: {', '.join(report.violated)}" if count else "nothing is violated"])


def _covered_text(covered: Covered) -> str:
    begun = "since the audit of" if covered.from_checkpoint else "since"
    return (
        f"covered: {begun} {covered.since:%Y-%m-%dT%H:%M:%SZ}, {covered.orders} orders,"
        f" {covered.entries} ledger entries, {covered.deliveries} deliveries"
    )


def _lines(invariant: Invariant) -> Iterator[str]:
    state = (
        f"{invariant.violations} VIOLATIONS" if invariant.violations else "ok" if invariant.checked else "not checked"
    )
    yield f"{invariant.code:4}{state:16}{invariant.title}" + (f" ({invariant.note})" if invariant.note else "")
    for row in invariant.samples:
        named = " ".join(f"{_camel(name)}={value}" for name, value in row.items() if name != "fault")
        yield f"    {row['fault']}: {named}"
    if len(invariant.samples) < invariant.violations:
        yield f"    and {invariant.violations - len(invariant.samples)} more"


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
