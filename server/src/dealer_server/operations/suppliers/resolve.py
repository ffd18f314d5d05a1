"""What becomes of a parked purchase? An operator finds out whether the supplier made it, and resolves it
(docs/decisions/0010-purchases.md)."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.esim import activation_code, iccid
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.suppliers import purchase as purchase_store
from dealer_server.store.suppliers.supplier import Parked
from dealer_server.suppliers.contract import Applied, Done, Rejected


async def list_parked(database: Database, code: str | None = None) -> list[Parked]:
    """The parked purchases of every supplier, or of one."""
    async with database.connection() as connection:
        return await store.supplier.parked(connection, code)


async def resolve_bought(
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
    """The purchase was made: its eSIM (ICCID `digits`, activation code `code`) is delivered. `ref`: the supplier's own
    name for the eSIM. Raises OperatorError."""
    try:
        verdict = Done(iccid.parse(digits), activation_code.parse(code).text, unit_ref=ref)
    except ValueError as error:
        raise OperatorError(str(error)) from None
    await _resolve(database, keys, unit_key, verdict, {"outcome": "bought", "iccid": verdict.iccid}, author, clock())


async def resolve_applied(database: Database, keys: DataKeys, unit_key: str, author: str, clock: Clock) -> None:
    """The eSIM was recharged. Raises OperatorError."""
    await _resolve(database, keys, unit_key, Applied(), {"outcome": "applied"}, author, clock())


async def resolve_not_bought(database: Database, keys: DataKeys, unit_key: str, author: str, clock: Clock) -> None:
    """The purchase was not made: the next supplier is asked, or the profile fails for good. Raises OperatorError."""
    verdict = Rejected("NOT_ALLOWED", True, "an operator found out that it was not bought")
    await _resolve(database, keys, unit_key, verdict, {"outcome": "not bought"}, author, clock())


async def _resolve(
    database: Database,
    keys: DataKeys,
    unit_key: str,
    verdict: Done | Applied | Rejected,
    detail: Mapping[str, object],
    author: str,
    now: datetime,
) -> None:
    async def work(connection: Connection) -> None:
        parked = {purchase.unit_key: purchase for purchase in await store.supplier.parked(connection)}
        purchase = parked.get(unit_key)
        if purchase is not None and isinstance(verdict, Done | Applied):
            _require_kind(purchase, verdict)
        if purchase is not None and isinstance(verdict, Done):
            await _require_unused(connection, purchase.supplier, verdict)
        sealed = purchase_store.seal_verdict(keys, unit_key, msgspec.json.encode(verdict))
        if purchase is None or not await purchase_store.resolve(connection, purchase.key, sealed, now):
            raise OperatorError(f"{unit_key} does not wait for an operator")
        await record_act(connection, author, "supplier.resolve", purchase.tenant_id, {"unitKey": unit_key, **detail})

    await database.run(work)


def _require_kind(purchase: Parked, made: Done | Applied) -> None:
    """Raises OperatorError."""
    if purchase.recharges is None and isinstance(made, Applied):
        raise OperatorError(f"{purchase.unit_key} buys an eSIM: its ICCID and its activation code are needed")
    if purchase.recharges is not None and isinstance(made, Done):
        raise OperatorError(f"{purchase.unit_key} recharges an eSIM: it has no ICCID and no activation code")


async def _require_unused(connection: Connection, supplier: str, made: Done) -> None:
    """Suppliers sell an ICCID again, but one eSIM belongs to one purchase (docs/decisions/0015-reused-iccids.md).
    Raises OperatorError."""
    other = await purchase_store.known_by(connection, supplier, made.iccid, made.unit_ref)
    if other is not None and made.unit_ref is not None:
        raise OperatorError(f"reference {made.unit_ref} is already that of {other}")
    if other is not None:
        raise OperatorError(
            f"ICCID {made.iccid} is that of {other}, which is still in use; if the supplier sold it again, give also"
            " its own name for this eSIM (--ref: esimTranNo, or profileId of a chain)"
        )
