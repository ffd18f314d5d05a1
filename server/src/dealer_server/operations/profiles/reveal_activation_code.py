"""An operator looks at a profile's activation code, and that it did is written down."""

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.store.profiles import qr


async def view_code(
    database: Database, data_keys: DataKeys, tenant_id: int, profile_id: int, author: str
) -> str | None:
    """None, and no act, where there is nothing to see: no codes yet, or none any more since the profile is void."""

    async def work(connection: Connection) -> str | None:
        found = await qr.find(connection, tenant_id, profile_id, data_keys)
        if found is None or found.cancelled:
            return None
        detail = {"profileId": profile_id}
        await store.audit_log.record_act(connection, author, "profile.view_code", tenant_id, detail)
        return found.activation_code

    return await database.run(work)
