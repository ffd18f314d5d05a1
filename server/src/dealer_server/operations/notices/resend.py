"""How is a mail that failed sent again? It is due at once, with all its attempts."""

from datetime import datetime

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.notices import listing


async def resend(database: Database, tenant_id: int, delivery_id: int, author: str, now: datetime) -> str:
    """Whom it is for. Raises OperatorError."""

    async def work(connection: Connection) -> str:
        name = await listing.send_again(connection, tenant_id, delivery_id, now)
        if name is None:
            raise OperatorError("this email did not fail, or is no longer kept")
        await record_act(connection, author, "notice.resend", tenant_id or None, {"user": name})
        return name

    return await database.run(work)
