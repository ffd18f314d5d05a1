"""Who may see a profile's QR code? Whoever has its link: the token in it is the only proof (specification 2.5)."""

import hmac

from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.store.profiles import qr

_NO_TOKEN = "-" * 22


async def code_of(database: Database, data_keys: DataKeys, tenant_id: int, profile_id: int, token: str) -> str | None:
    """The activation code behind a link, or None.

    A cancelled profile's QR code is not shown: a refunded eSIM must not be handed out again, and a code from stock may
    still work. A wrong token, an unknown profile and a cancelled one give the same answer.
    """
    if max(tenant_id, profile_id) >= 2**53:
        return None
    async with database.connection() as connection:
        link = await qr.find(connection, tenant_id, profile_id, data_keys)
    expected = link.token if link else _NO_TOKEN
    fits = hmac.compare_digest(expected.encode(), token.encode("utf-8", "surrogatepass"))
    return link.activation_code if link and fits and not link.cancelled else None
