"""How do packages get into the catalogue? From an operator's CSV file (docs/guides/catalog-import.md)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations import versions
from dealer_server.operations.catalogue import below_cost
from dealer_server.operations.catalogue.below_cost import Loss
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import price_changes
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.importing import Fault
from dealer_server.rules.catalogue.package import SUPPLIED_FIELDS, Package
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import packages as package_store
from dealer_server.store.suppliers.purchase import Hop


def with_route(package: Package, route: Sequence[Hop]) -> Package:
    """The package with the suppliers of its route: the first, and the second as fallback where the first is stock."""
    if not route:
        return package
    fallback = route[1].supplier if route[0].supplier == STOCK and len(route) > 1 else ""
    return msgspec.structs.replace(package, supplier=route[0].supplier, fallback=fallback)


class PackageChange(NamedTuple):
    """What is to become of a package. `before`: None for a new one; `fields`: (column, before, after)."""

    package: Package
    before: Package | None
    fields: Sequence[tuple[str, str, str]]


class Plan(NamedTuple):
    """What a file would change. With `faults` it changes nothing. `warnings`: what it would reset, or cannot set;
    `losses`: prices below the cost, which are to be confirmed. `packages` counts those of the file."""

    packages: int
    changes: Sequence[PackageChange]
    faults: Sequence[Fault]
    warnings: Sequence[Fault]
    losses: Sequence[Loss]
    version: str

    @property
    def new(self) -> int:
        return sum(change.before is None for change in self.changes)


class ImportResult(msgspec.Struct, frozen=True):
    """All packages of a file are imported or, where there are faults, none. `changed` counts new and different ones."""

    packages: int
    changed: int
    faults: tuple[Fault, ...]


async def plan_import(connection: Connection, text: str, *, lock: bool = False) -> Plan:
    """What a file would change of the packages as they stand. `lock`: until the transaction ends."""
    lines = importing.codes(text)
    find = package_store.lock if lock else package_store.by_code
    existing = await find(connection, sorted(lines))
    content = importing.read(text, await suppliers(connection), existing)
    routes = await store.purchase.routes(connection, sorted(lines))
    after = [with_route(package, routes.get(package.package_code, [])) for package in content.packages]
    changes = [change for package in after if (change := _change(existing.get(package.package_code), package))]
    warnings = [*content.resets, *_of_route(content.packages, after, lines, existing)]
    found = losses(changes, routes)
    return Plan(
        packages=len(after),
        changes=changes,
        faults=content.faults,
        warnings=sorted(warnings, key=lambda warning: warning.line),
        losses=found,
        version=versions.fingerprint([[(change.before, change.package) for change in changes], found]),
    )


async def import_csv(
    database: Database,
    text: str,
    author: str,
    clock: Clock,
    *,
    version: str | None = None,
    allow_below_cost: bool = False,
) -> ImportResult:
    """Writes what a file changes. `version`: of the plan that was looked at; None: of none. Raises OperatorError where
    the plan is another one now, and BelowCost."""

    async def work(connection: Connection) -> ImportResult:
        await store.tenant.touch_catalogue(connection)
        plan = await plan_import(connection, text, lock=True)
        if plan.faults:
            return ImportResult(plan.packages, 0, tuple(plan.faults))
        if version not in (None, plan.version):
            raise OperatorError("The catalogue changed since the preview: nothing was imported. Preview the file again")
        below_cost.require_confirmed(plan.losses, allow_below_cost)
        await _write(connection, plan.changes, clock)
        detail = {"packages": plan.packages, "changed": len(plan.changes), "columns": _columns(plan.changes)}
        await record_act(connection, author, "catalog.import", None, detail)
        return ImportResult(plan.packages, len(plan.changes), ())

    return await database.run(work)


async def put_packages(database: Database, packages: Sequence[Package], author: str, clock: Clock) -> int:
    """Writes packages and lets every process reload the catalogue; gives how many are new or different."""

    async def work(connection: Connection) -> int:
        await store.tenant.touch_catalogue(connection)
        codes = [package.package_code for package in packages]
        routes = await store.purchase.routes(connection, codes)
        existing = await package_store.lock(connection, codes)
        routed = [with_route(package, routes.get(package.package_code, [])) for package in packages]
        changed = [one for one in routed if existing.get(one.package_code) != one]
        await _write(connection, [PackageChange(one, existing.get(one.package_code), ()) for one in changed], clock)
        detail = {"packages": len(packages), "changed": len(changed)}
        await record_act(connection, author, "catalog.import", None, detail)
        return len(changed)

    return await database.run(work)


async def _write(connection: Connection, changes: Sequence[PackageChange], clock: Clock) -> None:
    now = clock()
    before = [change.before for change in changes if change.before is not None]
    after = [change.package for change in changes]
    await store.package.put(connection, after, now)
    await price_changes.tell_all(connection, before, after, now)


async def suppliers(connection: Connection) -> list[str]:
    """The codes that a package may name."""
    return [*SUPPLIED_FIELDS, *await store.supplier.codes(connection)]


def losses(changes: Iterable[PackageChange], routes: Mapping[str, Sequence[Hop]]) -> list[Loss]:
    """The new prices that are below what the first supplier asks."""
    found = []
    for package, before, _ in changes:
        first = next(iter(routes.get(package.package_code, ())), None)
        moved = before is None or before.price != package.price
        cost = first.cost if first is not None and first.cost_currency == package.currency else None
        if moved and cost is not None and package.price < cost:
            found.append(Loss(package.package_code, package.price, cost, package.currency))
    return found


def _change(before: Package | None, after: Package) -> PackageChange | None:
    if before is None:
        return PackageChange(after, None, ())
    fields = importing.differences(before, after)
    return PackageChange(after, before, fields) if fields else None


def _of_route(
    given: Sequence[Package], routed: Sequence[Package], lines: Mapping[str, int], existing: Mapping[str, Package]
) -> list[Fault]:
    """The suppliers that a file names and a route overrules."""
    return [
        Fault(lines[new.package_code], "supplier", f"stays {new.supplier}: the package's route says it")
        for old, new in zip(given, routed, strict=True)
        if old.supplier != new.supplier and new.package_code in existing
    ]


def _columns(changes: Sequence[PackageChange]) -> list[str]:
    """Which columns changed in packages that were there before."""
    names = {name for change in changes for name, _, _ in change.fields}
    return [name for name in importing.NAMES if name in names]
