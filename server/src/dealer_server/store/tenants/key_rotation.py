"""Values sealed with a master key: a sealed value begins with the id of its key (db/sealing.py)."""

from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values, columns_of


class Sealed(NamedTuple):
    app_key: str
    tenant_id: int
    secret_version: int
    sealed_secret: bytes
    previous_secret: bytes | None


_KEY_ID = "substr({0}, 2, get_byte({0}, 0))"


async def credentials(connection: Connection, newest: bytes, after: str, limit: int) -> list[Sealed]:
    """Credentials with a secret that is not sealed with the newest key, locked."""
    rows = await connection.fetch(
        f"SELECT {columns_of(Sealed)} FROM credential"
        f" WHERE app_key > $2 AND ({_KEY_ID.format('sealed_secret')} <> $1"
        f"  OR {_KEY_ID.format('previous_secret')} <> $1) ORDER BY app_key LIMIT $3 FOR UPDATE",
        newest,
        after,
        limit,
    )
    return as_values(Sealed, rows)


async def reseal_credential(connection: Connection, app_key: str, sealed: bytes, previous: bytes | None) -> None:
    await connection.execute(
        "UPDATE credential SET sealed_secret = $2, previous_secret = $3 WHERE app_key = $1", app_key, sealed, previous
    )


async def data_keys(connection: Connection, newest: bytes) -> list[tuple[int, bytes]]:
    """(data_key_id, sealed key) of the data keys that are not sealed with the newest key, locked."""
    rows = await connection.fetch(
        f"SELECT data_key_id, sealed_key FROM data_key WHERE {_KEY_ID.format('sealed_key')} <> $1 FOR UPDATE", newest
    )
    return [(row["data_key_id"], row["sealed_key"]) for row in rows]


async def reseal_data_key(connection: Connection, number: int, sealed: bytes) -> None:
    await connection.execute("UPDATE data_key SET sealed_key = $2 WHERE data_key_id = $1", number, sealed)
