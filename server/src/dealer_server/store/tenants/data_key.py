"""The data keys, which seal in bulk and are themselves sealed with a master key."""

import secrets

from dealer_server.db.connection import Connection
from dealer_server.db.sealing import KEY_BYTES, DataKeys, MasterKeys, data_key_context


async def load(connection: Connection, master_keys: MasterKeys) -> DataKeys:
    """All data keys, unsealed; creates the first one. Raises CannotOpen if a master key is missing."""
    rows = await connection.fetch("SELECT data_key_id, sealed_key FROM data_key")
    if not rows:
        fresh = master_keys.seal(secrets.token_bytes(KEY_BYTES), data_key_context(1))
        await connection.execute("INSERT INTO data_key VALUES (1, $1) ON CONFLICT DO NOTHING", fresh)
        rows = await connection.fetch("SELECT data_key_id, sealed_key FROM data_key")
    return DataKeys(
        {row["data_key_id"]: master_keys.open(row["sealed_key"], data_key_context(row["data_key_id"])) for row in rows}
    )
