"""How does an operator write something down about an order? For other operators; its dealer never reads it."""

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.orders import identity
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.orders import note as note_store
from dealer_server.store.orders.note import LONGEST, Note


async def add_note(database: Database, order_no: str, text: str, author: str, clock: Clock) -> None:
    """Raises OperatorError."""
    order_id, text = identity.order_id(order_no), text.replace("\0", "").strip()
    if not 1 <= len(text) <= LONGEST:
        raise OperatorError(f"a note has 1 to {LONGEST:,} characters; this one has {len(text):,}", "note")

    async def work(connection: Connection) -> None:
        key = None if order_id is None else await store.order.key_of(connection, order_id)
        if key is None:
            raise OperatorError(f"no order {order_no}")
        await note_store.add(connection, *key, Note(author, text, clock()))
        await record_act(connection, author, "order.note", key[0], {"orderNo": order_no, "note": text})

    await database.run(work)
