"""Which forms of a session were sent?"""

from dealer_server.db.connection import Connection


async def take(connection: Connection, session_id: int, once_hash: bytes) -> bool:
    """False where this form was sent before, or its session has ended. Of several at once, one is the first."""
    done = await connection.execute(
        "INSERT INTO console_form (session_id, once_hash)"
        " SELECT session_id, $2 FROM console_session WHERE session_id = $1 ON CONFLICT DO NOTHING",
        session_id,
        once_hash,
    )
    return done == "INSERT 0 1"


async def give_back(connection: Connection, session_id: int, once_hash: bytes) -> None:
    await connection.execute("DELETE FROM console_form WHERE session_id = $1 AND once_hash = $2", session_id, once_hash)
