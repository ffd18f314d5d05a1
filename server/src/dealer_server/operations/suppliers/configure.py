"""How does an operator set up a supplier that is called? Its settings, its status, its routes and its ICCIDs."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations import versions
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.catalogue.import_packages import with_route
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import price_changes
from dealer_server.operations.suppliers.describe import settings_texts
from dealer_server.operations.versions import ABSENT
from dealer_server.rules.esim import iccid
from dealer_server.rules.money import money, percent
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import packages as package_store
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.suppliers import registry
from dealer_server.suppliers.chain.client import ChainSettings

_CODE = re.compile("[a-z0-9][a-z0-9:_-]{0,63}")
_RESERVED = ("new", "resolve")  # pages of the console
MOST_HOPS = 10
KEPT: Literal["KEPT"] = "KEPT"
"""The margin floor stays as it is."""


class SettingsRefused(OperatorError):
    """`faults`: what was wrong, by the setting's name, or "code"."""

    def __init__(self, line: str, faults: Mapping[str, str]):
        super().__init__(line)
        self.faults = faults


async def put_supplier(
    database: Database,
    keys: DataKeys,
    code: str,
    kind: str,
    settings: bytes,
    our_url: str,
    author: str,
    *,
    keep: bool = False,
    version: str | None = None,
) -> None:
    """Adds a supplier, or replaces its settings (JSON). Workers use them within a second. `our_url`: the base URL of
    this service. `keep`: what the document leaves out stays as it is. `version`: of the settings that the author has
    seen, ABSENT for a new one. Raises SettingsRefused, ChangedMeanwhile, OperatorError."""
    _require_code(code)

    async def work(connection: Connection) -> None:
        before = await store.supplier.lock(connection, keys, code)
        document = settings
        if before is not None and keep:
            document = _merged(before.kind, before.settings, kind, settings)
        parsed = _parsed(keys, kind, document, our_url)
        if version == ABSENT:
            _require_new(before is None, code)
        elif before is not None:
            stored = registry.read(before.kind, before.settings)
            versions.require(version, settings_texts(keys, stored), settings_texts(keys, parsed))
        elif version is not None:
            raise OperatorError(f"supplier {code} was removed since you opened it")
        await _write(connection, keys, code, kind, parsed, new=version == ABSENT)
        was = {} if before is None else settings_texts(keys, registry.read(before.kind, before.settings))
        told = _told(was, settings_texts(keys, parsed))
        await record_change(connection, author, "supplier.set", None, {"code": code, "kind": kind}, *told)

    await database.run(work)


def _told(was: Mapping[str, str], now: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings before and after, for the audit log: of a secret only whether it was replaced."""

    def hidden(text: str, before: str) -> str:
        if not text.startswith("secret "):  # how settings_texts begins one
            return text
        return "…" if before in ("", text) else "… (replaced)"

    return (
        {name: hidden(text, text) for name, text in was.items()},
        {name: hidden(text, was.get(name, text)) for name, text in now.items()},
    )


def _require_code(code: str) -> None:
    """Raises SettingsRefused."""
    if code in registry.BUILTIN:
        line = f"{code} is builtin: it needs no settings"
    elif _CODE.fullmatch(code) is None:
        line = f"{code!r}: a code is 1 to 64 of a-z, 0-9, :, _ and -"
    elif code in _RESERVED:
        line = f"{code!r}: this code is reserved"
    else:
        return
    raise SettingsRefused(line, {"code": line})


def _require_new(new: bool, code: str) -> None:
    """Raises SettingsRefused."""
    if not new:
        line = f"there is a supplier {code} already; choose another code"
        raise SettingsRefused(line, {"code": line})


def _merged(kind: str, stored: bytes, wanted_kind: str, given: bytes) -> bytes:
    """The stored settings with what is given instead. Raises OperatorError."""
    if wanted_kind != kind:
        raise OperatorError(f"it is a {kind}, and stays one: what is kept of its settings fits no {wanted_kind}")
    try:
        changes = msgspec.json.decode(given, type=dict[str, object])
    except msgspec.MsgspecError:
        raise OperatorError("settings: not a JSON object") from None
    return msgspec.json.encode(msgspec.json.decode(stored, type=dict[str, object]) | changes)


def _parsed(keys: DataKeys, kind: str, document: bytes, our_url: str) -> msgspec.Struct:
    """Raises SettingsRefused."""
    try:
        parsed = registry.read(kind, document)
    except registry.BadSettings as error:
        raise SettingsRefused(str(error), error.faults) from None
    if isinstance(parsed, ChainSettings):
        if parsed.base_url.rstrip("/") == our_url.rstrip("/"):
            line = "is this service's own address; an order would never end"
            raise SettingsRefused(f"settings of a chain: baseUrl {line}", {"baseUrl": f"it {line}"})
        parsed = msgspec.structs.replace(parsed, mark=keys.derive(b"chain mark")[:4].hex())
    return parsed


async def _write(
    connection: Connection, keys: DataKeys, code: str, kind: str, parsed: msgspec.Struct, *, new: bool
) -> None:
    """Raises SettingsRefused where another new one of this code came first."""
    document, token = msgspec.json.encode(parsed), secrets.token_urlsafe(24)
    if new:
        _require_new(await store.supplier.add(connection, keys, code, kind, document, token), code)
    else:
        await store.supplier.put(connection, keys, code, kind, document, token)


async def remove_supplier(database: Database, keys: DataKeys, code: str, author: str) -> None:
    """Deletes a supplier from which nothing was ever bought and to which no package is routed. Raises OperatorError."""

    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)  # first, as routes are written after it
        if await store.supplier.lock(connection, keys, code) is None:
            raise OperatorError(f"no supplier {code}")
        if why := await store.supplier.use_of(connection, code):
            raise OperatorError(f"{code} stays: {why}. Pause it instead")
        await store.supplier.remove(connection, code)
        await record_act(connection, author, "supplier.remove", None, {"code": code})

    await database.run(work)


async def set_supplier_status(database: Database, code: str, status: str, author: str) -> None:
    """ACTIVE, or PAUSED: nothing new is bought. Raises OperatorError."""

    async def work(connection: Connection) -> None:
        before = await store.supplier.set_status(connection, code, status)
        if before is None:
            raise OperatorError(f"no supplier {code}")
        changes = {"before": {"status": before}, "after": {"status": status}}
        await record_act(connection, author, "supplier.status", None, {"code": code, **changes})

    await database.run(work)


def route_version(hops: Sequence[Hop], floor: int | None) -> str:
    """For set_route; `floor`: the package's own margin floor."""
    return versions.version_of(_route_texts(hops, floor))


def _route_texts(hops: Sequence[Hop], floor: int | None) -> dict[str, str]:
    """Position by position; a position that is not there is empty."""
    texts = {f"Position {at}": "" for at in range(1, MOST_HOPS + 1)}
    texts |= {f"Position {at}": _hop_text(hop) for at, hop in enumerate(hops, 1)}
    return texts | {"Margin floor": "the platform's" if floor is None else percent.shown(floor)}


def _hop_text(hop: Hop) -> str:
    cost = "no cost" if hop.cost is None else f"{money.fine_text(hop.cost)} {hop.cost_currency}"
    return f"{hop.supplier} as {hop.sku}, {cost}"


async def set_route(
    database: Database,
    package_code: str,
    hops: Sequence[Hop],
    author: str,
    clock: Clock,
    *,
    floor: int | Literal["KEPT"] | None = KEPT,
    version: str | None = None,
) -> None:
    """Sets which suppliers make a package's eSIMs, in order of preference. `floor`: what of the price a purchase must
    leave, in basis points; None: what the platform's setting says. `version`: of the route that the author has seen.
    Raises ChangedMeanwhile, OperatorError."""
    if not hops or len({hop.supplier for hop in hops}) < len(hops):
        raise OperatorError("a route names at least one supplier, each once")
    if len(hops) > MOST_HOPS:
        raise OperatorError(f"a route names at most {MOST_HOPS} suppliers; this one names {len(hops)}")
    if isinstance(floor, int) and not 0 <= floor <= 10_000:
        raise OperatorError("a margin floor is from 0 to 100 %")

    async def work(connection: Connection) -> None:
        await store.tenant.touch_catalogue(connection)  # first, as every write of the catalogue does
        _require_suppliers(hops, [*await store.supplier.codes(connection), STOCK])
        packages = await package_store.lock(connection, [package_code])
        if package_code not in packages:
            raise OperatorError(f"no package {package_code}")
        before = (await store.purchase.routes(connection, [package_code])).get(package_code, [])
        floor_before = (await store.purchase.margin_floors(connection, [package_code])).get(package_code)
        wanted = floor_before if floor == KEPT else floor
        versions.require(version, _route_texts(before, floor_before), _route_texts(hops, wanted))
        costs, now = await store.price_list.costs(connection, [package_code]), clock()
        await store.supplier.set_route(connection, package_code, hops)
        detail: dict[str, object] = {"package": package_code, "before": before, "after": list(hops)}
        if wanted != floor_before:
            await store.supplier.set_margin_floor(connection, package_code, wanted)
            detail |= {"floorBefore": floor_before, "floorAfter": wanted}
        routed = with_route(packages[package_code], hops)
        await store.package.put(connection, [routed], now)
        await price_changes.tell_all(connection, [packages[package_code]], [routed], now, costs)
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
                raise OperatorError(f"line {number}: {error}", "iccids") from None
    if not iccids:
        raise OperatorError("the file is empty; accepted: one ICCID a line", "iccids")

    async def work(connection: Connection) -> int:
        if code not in await store.supplier.codes(connection):
            raise OperatorError(f"no supplier {code}")
        new = await store.supplier.load_iccids(connection, code, sku, iccids)
        await record_act(connection, author, "supplier.iccids", None, {"code": code, "sku": sku, "new": new})
        return new

    return await database.run(work)
