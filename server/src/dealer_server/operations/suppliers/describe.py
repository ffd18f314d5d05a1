"""How is a supplier doing? What operators see of it, without its secrets."""

from collections.abc import Sequence

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.versions import fingerprint, version_of
from dealer_server.rules.money import money
from dealer_server.store.suppliers.supplier import Parked, Supplier, Totals
from dealer_server.suppliers import registry
from dealer_server.suppliers.contract import Remote

_SECRET_WORDS = ("secret", "key", "password", "token", "cert")
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"


class SupplierDescription(msgspec.Struct, frozen=True, rename="camel"):
    """A supplier as operators see it. `events`: the path to which it sends its messages; `purchases`: how many by
    state; `cost` and `sold`: sums in major units by currency; `free_iccids` by sku; `parked`: unit keys."""

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


async def show_suppliers(database: Database, keys: DataKeys, code: str | None = None) -> list[SupplierDescription]:
    """Every supplier, or one. Raises OperatorError."""
    async with database.connection() as connection:
        if code is None:
            suppliers = await store.supplier.load(connection, keys)
        else:
            suppliers = [await load_supplier(connection, keys, code)]
        return [
            _description(
                supplier,
                await store.supplier.totals(connection, supplier.code),
                await store.supplier.free_iccids(connection, supplier.code),
                await store.supplier.parked(connection, supplier.code),
            )
            for supplier in suppliers
        ]


async def load_supplier(connection: Connection, keys: DataKeys, code: str) -> Supplier:
    """Raises OperatorError."""
    for supplier in await store.supplier.load(connection, keys):
        if supplier.code == code:
            return supplier
    raise OperatorError(f"no supplier {code}")


def open_remote(supplier: Supplier) -> Remote:
    return registry.make(supplier.code, supplier.kind, supplier.settings)


def events_path(supplier: Supplier) -> str:
    """Where its messages come to."""
    return f"/events/{supplier.code}/{supplier.event_token}"


def _description(
    supplier: Supplier, totals: Totals, free_iccids: dict[str, int], parked: Sequence[Parked]
) -> SupplierDescription:
    return SupplierDescription(
        code=supplier.code,
        kind=supplier.kind,
        status=supplier.status,
        paused_reason=supplier.paused_reason,
        settings=visible_settings(registry.read(supplier.kind, supplier.settings)),
        events=events_path(supplier),
        purchases=totals.states,
        cost={currency: money.text(amount, currency) for currency, amount in totals.cost.items()},
        sold={currency: money.text(amount, currency) for currency, amount in totals.sold.items()},
        free_iccids=free_iccids,
        parked=[purchase.unit_key for purchase in parked],
    )


def settings_version(keys: DataKeys, supplier: Supplier) -> str:
    """For put_supplier."""
    return version_of(settings_texts(keys, registry.read(supplier.kind, supplier.settings)))


def settings_texts(keys: DataKeys, settings: msgspec.Struct) -> dict[str, str]:
    """As operators write them; of a secret only what tells it from another one."""
    values: dict[str, object] = msgspec.to_builtins(settings)
    key = keys.derive(b"form version")
    return {
        name: f"secret {fingerprint(values[name], key)[:6]}" if shown == "…" else _text(shown)
        for name, shown in visible_settings(settings).items()
    }


def _text(value: object) -> str:
    match value:
        case None | "":
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(str(one) for one in value)
        case _:
            return str(value)


def visible_settings(settings: msgspec.Struct) -> dict[str, object]:
    """Settings with each secret as "…"; of certificates only subject, expiry and fingerprint."""
    values: dict[str, object] = msgspec.to_builtins(settings)
    return {
        name: _visible(name, value) if isinstance(value, str) and value else value for name, value in values.items()
    }


def _visible(name: str, value: str) -> str:
    if _CERTIFICATE in value:
        return _certificates(value)
    return "…" if is_secret(name) else value


def is_secret(name: str) -> bool:
    """Whether a setting of this name is never shown. Certificates are told by what tells them apart."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def _certificates(pem: str) -> str:
    try:
        certificates = x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        return "…"
    return "; ".join(
        f"{certificate.subject.rfc4514_string()}, expires {certificate.not_valid_after_utc:%Y-%m-%d},"
        f" SHA-256 {certificate.fingerprint(hashes.SHA256()).hex()}"
        for certificate in certificates
    )
