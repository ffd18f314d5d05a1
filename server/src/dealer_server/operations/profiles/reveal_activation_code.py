"""How does an operator see a profile's activation code? The audit log records each time."""

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.profiles import qr


async def reveal_activation_code(
    database: Database, data_keys: DataKeys, tenant_id: int, profile_id: int, author: str
) -> str | None:
    """None, and nothing recorded, where there is no code yet or the profile is void."""

    async def work(connection: Connection) -> str | None:
        link = await qr.find(connection, tenant_id, profile_id, data_keys)
        if link is None or link.cancelled:
            return None
        await record_act(connection, author, "profile.view_code", tenant_id, {"profileId": profile_id})
        return link.activation_code

    return await database.run(work)
