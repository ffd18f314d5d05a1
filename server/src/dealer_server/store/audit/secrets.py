"""Which values of the database are sealed, and for which row? The audit opens each of them."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import asyncpg

from dealer_server.db import sealing
from dealer_server.db.connection import Connection
from dealer_server.store.webhooks import bodies

_ROWS_PER_FETCH = 5_000
_BODIES = 10_000


class Secrets(NamedTuple):
    """Sealed values of one kind. The columns of `sql` are the arguments of `context`, then the sealed value.

    `former_context`: what older values of this kind were sealed for.
    """

    what: str
    by_master_key: bool
    context: Callable[..., bytes]
    sql: str
    former_context: Callable[..., bytes] | None = None


async def sealed(
    connection: Connection, secrets: Secrets, tenant_id: int | None
) -> AsyncIterator[Sequence[asyncpg.Record]]:
    """The rows of these secrets, a few thousand at a time."""
    cursor = await connection.cursor(secrets.sql, tenant_id)
    while rows := await cursor.fetch(_ROWS_PER_FETCH):
        yield rows


DATA_KEYS = Secrets(
    "the data key",
    True,
    sealing.data_key_context,
    "SELECT data_key_id, sealed_key FROM data_key WHERE $1::bigint IS NULL OR true",
)
# Of the webhook bodies only the newest are opened: they take more room than everything else together.
SECRETS = (
    Secrets(
        "the AppSecret",
        True,
        sealing.credential_context,
        "SELECT tenant_id, app_key, secret_version, sealed_secret FROM credential"
        " WHERE $1::bigint IS NULL OR tenant_id = $1",
    ),
    Secrets(
        "the AppSecret before the reset",
        True,
        sealing.credential_context,
        "SELECT tenant_id, app_key, secret_version - 1 AS secret_version, previous_secret FROM credential"
        " WHERE previous_secret IS NOT NULL AND ($1::bigint IS NULL OR tenant_id = $1)",
    ),
    DATA_KEYS,
    Secrets(
        "the activation code",
        False,
        sealing.profile_context,
        "SELECT tenant_id, profile_id, activation_code FROM profile"
        " WHERE activation_code IS NOT NULL AND ($1::bigint IS NULL OR tenant_id = $1)",
    ),
    Secrets(
        "the activation code in stock",
        False,
        sealing.stock_context,
        "SELECT iccid, activation_code FROM stock_profile WHERE $1::bigint IS NULL OR taken_tenant_id = $1",
    ),
    Secrets(
        "the supplier's settings",
        False,
        sealing.supplier_context,
        "SELECT code, settings FROM supplier WHERE $1::bigint IS NULL OR true",
    ),
    Secrets(
        "the text of an SMS",
        False,
        sealing.sms_context,
        "SELECT tenant_id, sms_id, message FROM sms"
        " WHERE message IS NOT NULL AND ($1::bigint IS NULL OR tenant_id = $1)",
    ),
    Secrets(
        "the webhook body",
        False,
        bodies.context,
        "SELECT tenant_id, delivery_id, body FROM webhook_delivery"
        " WHERE body IS NOT NULL AND ($1::bigint IS NULL OR tenant_id = $1)"
        f" ORDER BY delivery_id DESC LIMIT {_BODIES}",
        former_context=sealing.delivery_context,
    ),
)
