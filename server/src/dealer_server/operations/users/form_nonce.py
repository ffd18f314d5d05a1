"""Was this form sent before? Each of a page's forms carries a value of its own, and acts once however often it is sent.

What is remembered ends with the session.
"""

import hashlib

from dealer_server.db.database import Database
from dealer_server.store.console import form_nonce


async def take(database: Database, session_id: int, once: str) -> bool:
    """Whether this is the first time; of several at once, one is the first."""
    async with database.connection() as connection:
        return await form_nonce.take(connection, session_id, _hash(once))


async def give_back(database: Database, session_id: int, once: str) -> None:
    """It was refused and nothing was done: it may be sent again."""
    async with database.connection() as connection:
        await form_nonce.give_back(connection, session_id, _hash(once))


def _hash(once: str) -> bytes:
    return hashlib.sha256(once.encode()).digest()
