"""What can an operator do with suppliers that are called? Set them up, route packages to them, see how they are, and
say what became of purchases that nobody knows about."""

import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.catalogue.import_packages import made_by
from dealer_server.operations.tenants.tenant import OperatorError
from dealer_server.rules.catalogue import margin
from dealer_server.rules.catalogue.margin import Change, Margin, Offer
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.lifecycle import activation_code, iccid
from dealer_server.rules.money import money
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.suppliers import purchase
from dealer_server.store.suppliers import supplier as rows
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.store.suppliers.supplier import Parked, Supplier, Totals
from dealer_server.suppliers import registry
from dealer_server.suppliers.chain.client import ChainSettings
from dealer_server.suppliers.contract import Done, Health, Rejected, Remote
from dealer_server.suppliers.rt.calls import NoAnswer, NotSent
from dealer_server.suppliers.rt.upstream import RtUpstream

_package = msgspec.json.Decoder(Package)
_CODE = re.compile("[a-z0-9][a-z0-9:_-]{0,63}")


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    """A supplier as operators see it. `events` is where its messages are to be sent, below the address of the events
    door. Sums in major units by currency."""

    code: str
    kind: str
    status: str
    paused_reason: str | None
    settings: dict[str, object]
    events: str
    purchases: dict[str, int]
    cost: dict[str, str]
    sold: dict[str, str]
    free_iccids: dict[str, int]
    parked: list[str]


async def put(
    database: Database, keys: DataKeys, code: str, kind: str, settings: bytes, our_url: str, author: str
) -> None:
    """Adds a supplier, or gives one new settings. Workers take them up within a second. Raises OperatorError."""
    if code in registry.IN_THE_HOUSE:
        raise OperatorError(f"{code} is in the house: it needs no settings")
    if _CODE.fullmatch(code) is None:
        raise OperatorError(f"{code!r}: a code is 1 to 64 of a-z, 0-9, :, _ and -")
    try:
        read = registry.read(kind, settings)
    except registry.BadSettings as error:
        raise OperatorError(str(error)) from None
    if isinstance(read, ChainSettings):
        if read.base_url.rstrip("/") == our_url.rstrip("/"):
            raise OperatorError("settings of a chain: baseUrl is this service's own address; an order would never end")
        read = msgspec.structs.replace(read, mark=keys.derive(b"chain mark")[:4].hex())

    async def work(connection: Connection) -> None:
        await rows.put(connection, keys, code, kind, msgspec.json.encode(read), secrets.token_urlsafe(24))
        await _record(connection, author, "supplier.set", {"code": code, "kind": kind, "settings": _masked(read)})

    await database.run(work)


async def set_status(database: Database, code: str, status: str, author: str) -> None:
    """ACTIVE, or PAUSED: nothing new is bought. Raises OperatorError."""

    async def work(connection: Connection) -> None:
        if not await rows.set_status(connection, code, status):
            raise OperatorError(f"no supplier {code}")
        await _record(connection, author, "supplier.status", {"code": code, "after": {"status": status}})

    await database.run(work)


async def set_route(database: Database, package_code: str, hops: Sequence[Hop], author: str, clock: Clock) -> None:
    """Says who makes a package's eSIMs, in order of preference. Raises OperatorError."""

    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)  # first, as every write of the catalogue does
        known = [*await rows.codes(connection), STOCK]
        for at, hop in enumerate(hops):
            if hop.supplier not in known:
                raise OperatorError(f"no supplier {hop.supplier}; there are {', '.join(known)}")
            if hop.supplier == STOCK and at:
                raise OperatorError("stock can only be the first of a route")
        document = await connection.fetchval(
            "SELECT document::text FROM package WHERE package_code = $1 FOR NO KEY UPDATE", package_code
        )
        if document is None:
            raise OperatorError(f"no package {package_code}")
        package = _package.decode(document)
        before = await purchase.routes(connection, [package_code])
        await rows.set_route(connection, package_code, hops)
        await store.package.put(connection, [made_by(package, hops)], clock())
        detail = {"package": package_code, "before": before.get(package_code, []), "after": list(hops)}
        await _record(connection, author, "supplier.route", detail)

    if not hops or len({hop.supplier for hop in hops}) < len(hops):
        raise OperatorError("a route names at least one supplier, each once")
    await database.run(work)


async def load_iccids(database: Database, code: str, sku: str, lines: Sequence[str], author: str) -> int:
    """Adds the ICCIDs an SM-DP+ has put aside for us, all or none; how many were new. Raises OperatorError."""
    parsed: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                parsed.append(iccid.parse(line.strip()))
            except ValueError as error:
                raise OperatorError(f"line {number}: {error}") from None
    if not parsed:
        raise OperatorError("the file is empty; accepted: one ICCID a line")

    async def work(connection: Connection) -> int:
        if code not in await rows.codes(connection):
            raise OperatorError(f"no supplier {code}")
        new = await rows.load_iccids(connection, code, sku, parsed)
        await _record(connection, author, "supplier.iccids", {"code": code, "sku": sku, "new": new})
        return new

    return await database.run(work)


async def show(database: Database, keys: DataKeys, code: str | None = None) -> list[Shown]:
    """Every supplier, or one. Raises OperatorError."""
    async with database.connection() as connection:
        found = await rows.load(connection, keys) if code is None else [await _named(connection, keys, code)]
        return [
            _shown(
                one,
                await rows.totals(connection, one.code),
                await rows.free_iccids(connection, one.code),
                await rows.parked(connection, one.code),
            )
            for one in found
        ]


async def check(database: Database, keys: DataKeys, code: str) -> Health:
    """Asks a supplier how it is, now. Raises OperatorError."""
    async with database.connection() as connection:
        remote = opened(await _named(connection, keys, code))
    try:
        return await remote.health()
    finally:
        await remote.close()


async def _named(connection: Connection, keys: DataKeys, code: str) -> Supplier:
    """Raises OperatorError."""
    for one in await rows.load(connection, keys):
        if one.code == code:
            return one
    raise OperatorError(f"no supplier {code}")


def opened(one: Supplier) -> Remote:
    return registry.make(one.code, one.kind, one.settings)


async def compare(database: Database, keys: DataKeys, code: str, rule: Margin) -> list[Change]:
    """What our catalogue would become if it sold what a supplier lists, at a margin. Raises OperatorError."""
    async with database.connection() as connection:
        one = await _named(connection, keys, code)
        documents = await rows.packages_routed_first_to(connection, code)
    remote = opened(one)
    try:
        if not isinstance(remote, RtUpstream):
            raise OperatorError(f"{code} is a {one.kind}: it has no list of packages that can be read")
        listed = await remote.packages()
    except (NotSent, NoAnswer) as error:
        raise OperatorError(f"{code} did not give its list: {error}") from None
    finally:
        await remote.close()
    existing = [Offer(_package.decode(document), sku, cost) for document, sku, cost in documents]
    return margin.preview(listed, rule, existing, code)


async def take_over(database: Database, code: str, changes: Sequence[Change], author: str, clock: Clock) -> None:
    """Puts compared packages on sale with their routes, all or none; the rest of a route that is there stays."""
    offers = [change.offer for change in changes if change.offer is not None]

    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)
        await store.package.put(connection, [offer.package for offer in offers], clock())
        before = await purchase.routes(connection, [offer.package.package_code for offer in offers])
        for offer in offers:
            package = offer.package
            others = [hop for hop in before.get(package.package_code, []) if hop.supplier != code]
            first = Hop(code, offer.sku, offer.cost, None if offer.cost is None else package.currency)
            await rows.set_route(connection, package.package_code, [first, *others])
        kinds_of = Counter(change.kind for change in changes)
        await _record(connection, author, "supplier.import", {"code": code, "changes": dict(kinds_of)})

    if offers:
        await database.run(work)


async def parked(database: Database, code: str | None = None) -> list[Parked]:
    async with database.connection() as connection:
        return await rows.parked(connection, code)


async def bought(
    database: Database,
    keys: DataKeys,
    unit_key: str,
    digits: str,
    code: str,
    author: str,
    clock: Clock,
    *,
    ref: str | None = None,
) -> None:
    """An operator found out that a parked purchase was made: it is handed out. `ref` is what the supplier calls the
    eSIM. Raises OperatorError."""
    try:
        verdict = Done(iccid.parse(digits), activation_code.parse(code).text, unit_ref=ref)
    except ValueError as error:
        raise OperatorError(str(error)) from None
    await _resolve(database, keys, unit_key, verdict, {"outcome": "bought", "iccid": verdict.iccid}, author, clock())


async def not_bought(database: Database, keys: DataKeys, unit_key: str, author: str, clock: Clock) -> None:
    """An operator found out that a parked purchase was not made: the next supplier is asked, or it fails for good.
    Raises OperatorError."""
    verdict = Rejected("NOT_ALLOWED", True, "an operator found out that it was not bought")
    await _resolve(database, keys, unit_key, verdict, {"outcome": "not bought"}, author, clock())


async def _resolve(
    database: Database,
    keys: DataKeys,
    unit_key: str,
    verdict: Done | Rejected,
    detail: Mapping[str, object],
    author: str,
    now: datetime,
) -> None:
    async def work(connection: Connection) -> None:
        one = next((one for one in await rows.parked(connection) if one.unit_key == unit_key), None)
        if one is not None and isinstance(verdict, Done):
            await _own(connection, one.supplier, verdict)
        sealed = purchase.seal_verdict(keys, unit_key, msgspec.json.encode(verdict))
        if one is None or not await purchase.resolve(connection, one.key, sealed, now):
            raise OperatorError(f"{unit_key} does not wait for an operator")
        await _record(connection, author, "supplier.resolve", {"unitKey": unit_key, **detail}, one.tenant_id)

    await database.run(work)


async def _own(connection: Connection, supplier: str, found: Done) -> None:
    """Suppliers sell ICCIDs again, but no eSIM is two units'. Raises OperatorError."""
    other = await purchase.known_by(connection, supplier, found.iccid, found.unit_ref)
    if other is not None and found.unit_ref is not None:
        raise OperatorError(f"reference {found.unit_ref} is already that of {other}")
    if other is not None:
        raise OperatorError(
            f"ICCID {found.iccid} is that of {other}, which is still in use; if the supplier sold it again, give also"
            " its own name for this eSIM (--ref: esimTranNo, or profileId of a chain)"
        )


async def _record(
    connection: Connection, author: str, action: str, detail: Mapping[str, object], tenant_id: int | None = None
) -> None:
    await store.audit_log.record_act(connection, author, action, tenant_id, detail)


def _shown(one: Supplier, totals: Totals, free: dict[str, int], waiting: Sequence[Parked]) -> Shown:
    return Shown(
        one.code,
        one.kind,
        one.status,
        one.paused_reason,
        _masked(registry.read(one.kind, one.settings)),
        f"/events/{one.code}/{one.event_token}",
        totals.states,
        {currency: money.text(amount, currency) for currency, amount in totals.cost.items()},
        {currency: money.text(amount, currency) for currency, amount in totals.sold.items()},
        free,
        [unit.unit_key for unit in waiting],
    )


_SECRET_WORDS = ("secret", "key", "password", "token", "cert")
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"


def _masked(settings: msgspec.Struct) -> dict[str, object]:
    """Settings without what must not be seen; of certificates what tells them apart and when they expire."""
    built: dict[str, object] = msgspec.to_builtins(settings)
    return {name: _seen(name, value) if isinstance(value, str) and value else value for name, value in built.items()}


def _seen(name: str, value: str) -> str:
    if _CERTIFICATE in value:
        return _certificates(value)
    return "…" if any(word in name.lower() for word in _SECRET_WORDS) else value


def _certificates(pem: str) -> str:
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        return "…"
    return "; ".join(
        f"{one.subject.rfc4514_string()}, expires {one.not_valid_after_utc:%Y-%m-%d},"
        f" SHA-256 {one.fingerprint(hashes.SHA256()).hex()}"
        for one in found
    )
