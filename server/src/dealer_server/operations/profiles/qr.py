"""Who may see a profile's QR code? Whoever holds its link: the token in it is the only proof (decisions 3)."""

import hmac

from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.rules.lifecycle.qr import png, svg
from dealer_server.store.profiles import qr as links

__all__ = ["code_of", "png", "svg"]

_NO_TOKEN = "-" * 22


async def code_of(database: Database, data_keys: DataKeys, tenant_id: int, profile_id: int, token: str) -> str | None:
    """The activation code a link stands for, to be drawn by `svg` or `png`; None where there is nothing to show.

    A cancelled profile's QR code is gone: a refunded or void eSIM is not handed out again, least of all one from stock,
    which may still work. A wrong token, an unknown profile and a cancelled one look the same.
    """
    if max(tenant_id, profile_id) >= 2**53:
        return None
    async with database.connection() as connection:
        found = await links.find(connection, tenant_id, profile_id, data_keys)
    expected = found.token if found else _NO_TOKEN
    right = hmac.compare_digest(expected.encode(), token.encode("utf-8", "surrogatepass"))
    return found.activation_code if found and right and not found.cancelled else None
