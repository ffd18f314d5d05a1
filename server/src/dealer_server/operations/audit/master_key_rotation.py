"""Changing the master key while serving: what stands under an older one is sealed anew under the newest.

In chunks, each a transaction, so it holds up nobody and goes on where it was after an interruption. Processes load all
master keys; once a rotation has ended, the older ones can be taken out of the settings.
"""

from collections.abc import Callable
from typing import NamedTuple

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys, credential_context, data_key_context
from dealer_server.store.tenants import key_rotation as rows

CREDENTIALS_PER_CHUNK = 200


class Rotated(NamedTuple):
    """How many were sealed anew."""

    credentials: int
    data_keys: int


async def rotate(
    database: Database, master_keys: MasterKeys, author: str, progress: Callable[[int], None] = lambda _: None
) -> Rotated:
    """Seals credentials and data keys anew under the newest key. Raises CannotOpen where an older one is missing."""
    credentials, after = 0, ""
    while chunk := await database.run(lambda connection, at=after: _chunk(connection, master_keys, at)):
        credentials += len(chunk)
        after = chunk[-1]
        progress(len(chunk))
    data_keys = await database.run(lambda connection: _data_keys(connection, master_keys))
    done = Rotated(credentials, data_keys)

    async def record(connection: Connection) -> None:
        detail = {"key": master_keys.newest.decode(), **done._asdict()}
        await store.audit_log.record_act(connection, author, "keys.rotate", None, detail)

    await database.run(record)
    return done


async def _chunk(connection: Connection, master_keys: MasterKeys, after: str) -> list[str]:
    """The AppKeys whose secrets were sealed anew."""
    found = await rows.credentials(connection, master_keys.newest, after, CREDENTIALS_PER_CHUNK)
    for one in found:
        now = credential_context(one.tenant_id, one.app_key, one.secret_version)
        before = credential_context(one.tenant_id, one.app_key, one.secret_version - 1)
        sealed = master_keys.seal(master_keys.open(one.sealed_secret, now), now)
        previous = one.previous_secret and master_keys.seal(master_keys.open(one.previous_secret, before), before)
        await rows.reseal_credential(connection, one.app_key, sealed, previous)
    return [one.app_key for one in found]


async def _data_keys(connection: Connection, master_keys: MasterKeys) -> int:
    found = await rows.data_keys(connection, master_keys.newest)
    for number, sealed in found:
        context = data_key_context(number)
        await rows.reseal_data_key(connection, number, master_keys.seal(master_keys.open(sealed, context), context))
    return len(found)
