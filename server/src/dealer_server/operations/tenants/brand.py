"""How does a dealer's brand change? By the dealer itself or an operator; it stands on its install pages at once."""

import hashlib
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.errors import FieldFaults, OperatorError
from dealer_server.rules.brand import brand as rules
from dealer_server.rules.brand import logo
from dealer_server.rules.brand.brand import Brand
from dealer_server.store.tenants import brand as store

T = TypeVar("T")
Given = TypeVar("Given", str, bytes)
_CALLED = {
    "support_email": "support email",
    "support_phone": "support phone",
    "support_url": "support page",
    "sales_url": "shop address",
}


class BrandChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to change, as typed; None leaves it, "" removes it. colour: #rrggbb. logo: the file."""

    name: str | None = None
    colour: str | None = None
    support_email: str | None = None
    support_phone: str | None = None
    support_url: str | None = None
    sales_url: str | None = None
    logo: bytes | None = None
    no_logo: bool = False


async def read_brand(database: Database, tenant_id: int) -> Brand:
    async with database.connection() as connection:
        return await store.find(connection, tenant_id)


async def set_brand(database: Database, tenant_id: int, change: BrandChange, author: str) -> None:
    """Raises FieldFaults, which names each field that is wrong; then nothing is changed."""

    await database.run(lambda connection: set_brand_within(connection, tenant_id, change, author))


async def set_brand_within(connection: Connection, tenant_id: int, change: BrandChange, author: str) -> None:
    """The same, in a transaction that is open. Raises OperatorError; FieldFaults, which names each wrong field."""
    before = await store.lock(connection, tenant_id)
    if before is None:
        raise OperatorError(f"no tenant {tenant_id}")
    after = _changed(before, change)
    await store.put(connection, tenant_id, after)
    await record_change(connection, author, "tenant.brand", tenant_id, {}, _described(before), _described(after))


def _changed(before: Brand, change: BrandChange) -> Brand:
    """Raises FieldFaults."""
    faults = dict[str, str]()

    def parsed(field: str, given: Given | None, parse: Callable[[Given], T], before: T) -> T:
        try:
            return before if given is None else parse(given)
        except ValueError as error:
            called = _CALLED.get(field, field)
            named = f"{called} {given!r}" if isinstance(given, str) else called
            faults[field] = f"{named[:200]} {error}"
            return before

    after = Brand(
        name=parsed("name", change.name, rules.parse_name, before.name),
        colour=parsed("colour", change.colour, rules.parse_colour, before.colour),
        support_email=parsed("support_email", change.support_email, rules.parse_email, before.support_email),
        support_phone=parsed("support_phone", change.support_phone, rules.parse_phone, before.support_phone),
        support_url=parsed("support_url", change.support_url, rules.parse_url, before.support_url),
        sales_url=parsed("sales_url", change.sales_url, rules.parse_url, before.sales_url),
        logo=None if change.no_logo else parsed("logo", change.logo, logo.parse, before.logo),
    )
    if faults:
        raise FieldFaults(faults)
    return after


def _described(brand: Brand) -> Mapping[str, object]:
    """For the audit log: of the logo its kind, its size and the beginning of its SHA-256."""
    fields = {name: getattr(brand, name) for name in msgspec.structs.asdict(brand) if name != "logo"}
    if brand.logo is None:
        return fields | {"logo": ""}
    digest = hashlib.sha256(brand.logo.content).hexdigest()[:16]
    return fields | {"logo": f"{brand.logo.media_type}, {len(brand.logo.content)} bytes, {digest}"}
