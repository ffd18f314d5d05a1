"""Is the database consistent? The invariants A1 to A25 of the ledger, of orders and of the work behind them.

The check is read-only and runs on one snapshot, so the service can go on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import CannotOpen, DataKeys, MasterKeys
from dealer_server.store.audit import audit_log, invariants, secrets

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


class AuditReport(msgspec.Struct, frozen=True, rename="camel"):
    """`tenant_id` None: of all tenants. `violated`: the codes of the violated invariants. `log_head`: the hash over the
    `acts` of the audit log, in hex; kept elsewhere, it shows later whether one of them was changed."""

    at: datetime
    tenant_id: int | None
    violated: Sequence[str]
    invariants: Sequence[Invariant]
    acts: int
    log_head: str

    def __getitem__(self, code: str) -> Invariant:
        return next(invariant for invariant in self.invariants if invariant.code == code)


async def check_invariants(
    database: Database,
    master_keys: MasterKeys | None,
    data_keys: DataKeys | None,
    now: datetime,
    tenant_id: int | None = None,
    seen: bytes | None = None,
) -> AuditReport:
    """Checks every invariant, of all tenants or of one.

    Secrets are opened only where their keys are given; without data keys, those that the master keys open are used.
    `seen`: the head of the audit log in an earlier report.
    """
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await invariants.prepare(connection, tenant_id)
        findings = {code: _Findings() for code in CODES}
        for query in invariants.QUERIES:
            violations = await invariants.violations(connection, query, tenant_id, now)
            findings[query.invariant].add(query.fault, violations.rows, violations.total)
        head = await audit_log.head(connection)
        if seen is not None and not await audit_log.has_act(connection, seen):
            findings["A24"].add("the log does not contain the head of the earlier report", [{"seen": seen.hex()}], 1)
        if data_keys is None and master_keys is not None:
            data_keys = await _open_data_keys(connection, master_keys)
        for kind in secrets.SECRETS:
            keys = master_keys if kind.by_master_key else data_keys
            await _open_all(connection, kind, keys, tenant_id, findings[SECRETS_OPEN])
    results = [_invariant(code, findings[code]) for code in CODES]
    return AuditReport(
        at=now,
        tenant_id=tenant_id,
        violated=[invariant.code for invariant in results if invariant.violations],
        invariants=results,
        acts=head.acts,
        log_head=head.hash.hex(),
    )


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
    """Opens every secret of one kind, a few thousand at a time."""
    if keys is None:
        findings.left_out.append(f"no key to open {kind.what}")
        return
    async for chunk in secrets.sealed(connection, kind, tenant_id):
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
    lines.append(f"audit log: {report.acts} acts, head {report.log_head}")
    return "\n".join([*lines, f"{count} violated: {', '.join(report.violated)}" if count else "nothing is violated"])


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
