"""How is the master key changed while serving? Secrets sealed with an older key are sealed again with the newest.

Each chunk is a transaction, so nothing waits for long, and an interrupted rotation continues where it was. Processes
load all master keys; after a rotation the older ones can be removed from the settings.
"""

from collections.abc import Callable
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys, credential_context, data_key_context
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.tenants import key_rotation

CREDENTIALS_PER_CHUNK = 200


class Rotated(NamedTuple):
    """How many secrets were sealed again."""

    credentials: int
    data_keys: int


async def rotate_master_key(
    database: Database, master_keys: MasterKeys, author: str, progress: Callable[[int], None] = lambda _: None
) -> Rotated:
    """Seals credentials and data keys with the newest key. `progress` is called with the size of each chunk. Raises
    CannotOpen where an older key is missing."""
    credentials, after = 0, ""
    while chunk := await database.run(lambda connection, at=after: _reseal_credentials(connection, master_keys, at)):
        credentials += len(chunk)
        after = chunk[-1]
        progress(len(chunk))
    data_keys = await database.run(lambda connection: _reseal_data_keys(connection, master_keys))
    rotated = Rotated(credentials, data_keys)
    detail = {"key": master_keys.newest.decode(), **rotated._asdict()}
    await database.run(lambda connection: record_act(connection, author, "keys.rotate", None, detail))
    return rotated


async def _reseal_credentials(connection: Connection, master_keys: MasterKeys, after: str) -> list[str]:
    """One chunk; gives its AppKeys in order."""
    credentials = await key_rotation.credentials(connection, master_keys.newest, after, CREDENTIALS_PER_CHUNK)
    for credential in credentials:
        tenant_id, app_key, version = credential.tenant_id, credential.app_key, credential.secret_version
        current, previous = (credential_context(tenant_id, app_key, number) for number in (version, version - 1))
        sealed = master_keys.seal(master_keys.open(credential.sealed_secret, current), current)
        sealed_previous = credential.previous_secret and master_keys.seal(
            master_keys.open(credential.previous_secret, previous), previous
        )
        await key_rotation.reseal_credential(connection, app_key, sealed, sealed_previous)
    return [credential.app_key for credential in credentials]


async def _reseal_data_keys(connection: Connection, master_keys: MasterKeys) -> int:
    data_keys = await key_rotation.data_keys(connection, master_keys.newest)
    for number, sealed in data_keys:
        context = data_key_context(number)
        resealed = master_keys.seal(master_keys.open(sealed, context), context)
        await key_rotation.reseal_data_key(connection, number, resealed)
    return len(data_keys)
