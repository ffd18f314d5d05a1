"""How does an act get into the audit log? In the transaction that carries it out (docs/decisions/0009-audit-log.md)."""

from collections.abc import Mapping

from dealer_server.db.connection import Connection
from dealer_server.store.audit.audit_log import record_act


async def record_change(
    connection: Connection,
    author: str,
    action: str,
    tenant_id: int | None,
    detail: Mapping[str, object],
    before: Mapping[str, object],
    after: Mapping[str, object],
) -> None:
    """Adds an act that changes fields to the audit log.

    `before` and `after` hold all fields that it may change; only those
    that differ are recorded."""
    names = [name for name in after if before.get(name) != after[name]]
    changes = {
        "before": {name: before[name] for name in names if name in before},
        "after": {name: after[name] for name in names},
    }
    await record_act(connection, author, action, tenant_id, {**detail, **changes})
