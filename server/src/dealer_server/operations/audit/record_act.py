"""How does an act get into the audit log? In the transaction that carries it out (docs/decisions/0009-audit-log.md)."""

from collections.abc import Mapping

import msgspec

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session


async def record_act(
    connection: Connection | Session, author: str, action: str, tenant_id: int | None, detail: Mapping[str, object]
) -> None:
    """Adds one act to the audit log. `detail` holds no secret. Call it last in the transaction: acts are chained, so
    others wait for the commit."""
    await store.tenant.record_act(connection, author, action, tenant_id, msgspec.json.encode(detail).decode())


async def record_change(
    connection: Connection,
    author: str,
    action: str,
    tenant_id: int | None,
    detail: Mapping[str, object],
    before: Mapping[str, object],
    after: Mapping[str, object],
) -> None:
    """The same for an act that changes fields. `before` and `after` hold all fields that it may change; only those
    that differ are recorded."""
    names = [name for name in after if before.get(name) != after[name]]
    changes = {
        "before": {name: before[name] for name in names if name in before},
        "after": {name: after[name] for name in names},
    }
    await record_act(connection, author, action, tenant_id, {**detail, **changes})
