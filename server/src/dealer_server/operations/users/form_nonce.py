"""Was this form sent before? Each form of a page carries a nonce and is carried out once, however often it is sent.

Nonces are kept as long as their session.
"""

import hashlib

from dealer_server.db.database import Database
from dealer_server.store.console import form_nonce


async def take(database: Database, session_id: int, nonce: str) -> bool:
    """Whether the form was not sent before; of several at once, one is the first."""
    async with database.connection() as connection:
        return await form_nonce.take(connection, session_id, _hash(nonce))


async def give_back(database: Database, session_id: int, nonce: str) -> None:
    """Lets the form be sent again: it was refused and nothing was done."""
    async with database.connection() as connection:
        await form_nonce.give_back(connection, session_id, _hash(nonce))


def _hash(nonce: str) -> bytes:
    return hashlib.sha256(nonce.encode()).digest()
