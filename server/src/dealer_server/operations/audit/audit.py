"""Does the database keep its promises? Every invariant of the ledger, of orders and of the work behind them, A1 to A25.

Read-only and on one snapshot, so that it may run beside everything else.
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
    """What the audit found of one invariant. Each sample names a row that breaks it, and its `fault`; `note` says what
    was not `checked`."""

    code: str
    title: str
    checked: bool
    violations: int
    samples: Sequence[Row]
    note: str


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """`tenant_id` None: over all tenants. `violated`: the codes of the invariants that do not hold. `log_head` stands
    for the `acts` in the audit log, in hex: whoever keeps it can tell later whether one of them was changed."""

    at: datetime
    tenant_id: int | None
    violated: Sequence[str]
    invariants: Sequence[Invariant]
    acts: int
    log_head: str

    def __getitem__(self, code: str) -> Invariant:
        return next(one for one in self.invariants if one.code == code)


async def audit(
    database: Database,
    master_keys: MasterKeys | None,
    data_keys: DataKeys | None,
    now: datetime,
    tenant_id: int | None = None,
    seen: bytes | None = None,
) -> Report:
    """Checks every invariant, of all tenants or of one.

    Secrets that no key is given for are not opened; where only master keys are given, so are the data keys they open.
    `seen` is the head of the audit log as an earlier report said it.
    """
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await invariants.prepare(connection, tenant_id)
        found = {code: _Findings() for code in CODES}
        for query in invariants.QUERIES:
            violations = await invariants.violations(connection, query, tenant_id, now)
            found[query.invariant].add(query.fault, violations.rows, violations.total)
        head = await audit_log.head(connection)
        if seen is not None and not await audit_log.has_act(connection, seen):
            found["A24"].add("the log no longer leads to the head that was seen", [{"seen": seen.hex()}], 1)
        if data_keys is None and master_keys is not None:
            data_keys = await _open_data_keys(connection, master_keys)
        for kind in secrets.SECRETS:
            keys = master_keys if kind.by_master_key else data_keys
            await _open_all(connection, kind, keys, tenant_id, found[SECRETS_OPEN])
    checked = [_invariant(code, findings) for code, findings in found.items()]
    violated = [invariant.code for invariant in checked if invariant.violations]
    return Report(now, tenant_id, violated, checked, head.acts, head.hash.hex())


class _Findings:
    """What is found of one invariant, while the audit runs."""

    def __init__(self) -> None:
        self.violations = 0
        self.samples: list[Row] = []
        self.left_out: list[str] = []

    def add(self, fault: str, found: Sequence[Row], total: int) -> None:
        self.violations += total
        self.samples += [{"fault": fault, **row} for row in found[: invariants.SAMPLES - len(self.samples)]]


def _invariant(code: str, findings: _Findings) -> Invariant:
    note = "; ".join(findings.left_out)
    return Invariant(code, TITLES[code], not note, findings.violations, findings.samples, note)


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
            if why := _refused(keys, value, kind.context(*names)):
                named = dict(zip(row.keys(), names, strict=False))
                findings.add(f"{kind.what} does not open: {why}", [named], 1)


def _refused(keys: MasterKeys | DataKeys, value: bytes, context: bytes) -> str:
    """Why a sealed value does not open; "" where it does."""
    try:
        keys.open(value, context)
    except CannotOpen as error:
        return str(error)
    except (ValueError, IndexError):
        return "it is cut short"
    return ""


async def _open_data_keys(connection: Connection, master_keys: MasterKeys) -> DataKeys | None:
    """The data keys that open; None where none does."""
    opened: dict[int, bytes] = {}
    async for chunk in secrets.sealed(connection, secrets.DATA_KEYS, None):
        for number, value in chunk:
            with suppress(CannotOpen, ValueError, IndexError):
                opened[number] = master_keys.open(value, secrets.DATA_KEYS.context(number))
    return DataKeys(opened) if opened else None


def as_json(report: Report) -> str:
    content = msgspec.to_builtins(report)
    for invariant in content["invariants"]:
        invariant["samples"] = [{_camel(name): value for name, value in row.items()} for row in invariant["samples"]]
    return msgspec.json.encode(content).decode()


def as_text(report: Report) -> str:
    """A line per invariant, and one per sample of what is violated."""
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
