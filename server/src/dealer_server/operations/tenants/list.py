"""Which dealers are there?"""

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.store.tenants.tenant import Tenant


async def list_tenants(database: Database) -> list[Tenant]:
    """Every dealer, once per credential."""
    async with database.connection() as connection:
        return await store.tenant.listed(connection)
