"""How are the orders that wait for a supplier sent to the next suppliers of their routes?

Only what nothing was asked for yet moves: what may have been bought is never bought again (retry.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.orders.retry import retry_order
from dealer_server.rules.incidents import impact
from dealer_server.rules.orders import identity
from dealer_server.store.console import suppliers as supplier_store
from dealer_server.store.console.incidents import waiting

MOST = 200
"""Lines that are moved at once."""


class Move(NamedTuple):
    """A waiting line, which counts from 1, and where it can be bought instead."""

    order_no: str
    line: int
    to: str


class Moves(NamedTuple):
    """`more`: only the MOST that have waited longest were looked at."""

    moves: Sequence[Move]
    more: bool

    @property
    def suppliers(self) -> list[str]:
        return sorted({move.to for move in self.moves})


class Rerouted(NamedTuple):
    """`left`: why lines were left alone."""

    esims: int
    orders: int
    suppliers: Sequence[str]
    left: Sequence[str]
    more: bool


async def movable(connection: Connection, supplier: str) -> Moves:
    """The lines that wait for it and have a next supplier that is neither down nor paused."""
    lines = await waiting.lines(connection, supplier, "PLANNED", MOST + 1)
    routes = await store.purchase.routes(connection, sorted({line.package_code for line in lines}))
    known = await supplier_store.list_suppliers(connection)
    usable = {row.code for row in known if row.status == "ACTIVE" and row.up is not False}
    moves = list[Move]()
    for line in lines[:MOST]:
        route = [hop.supplier for hop in routes.get(line.package_code, ())]
        to = None if line.recharges else impact.following(route, supplier, usable)
        if to is not None:
            moves.append(Move(identity.order_no(line.order_id), line.line + 1, to))
    return Moves(moves, len(lines) > MOST)


async def reroute(database: Database, data_keys: DataKeys, supplier: str, author: str, clock: Clock) -> Rerouted:
    """Each line in a transaction of its own. Raises OperatorError where nothing can be moved."""
    async with database.connection() as connection:
        found = await movable(connection, supplier)
    esims, orders, suppliers, left = 0, set[str](), set[str](), list[str]()
    for move in found.moves:
        try:
            done = await retry_order(database, data_keys, move.order_no, move.line, move.to, author, clock)
        except OperatorError as why:
            left.append(str(why))
            continue
        left += done.left
        if done.retried:  # else it was moved meanwhile
            esims += done.retried
            orders.add(move.order_no)
            suppliers.add(move.to)
    if not orders:
        reasons = "; ".join(left[:3]) or "nothing that waits for it has a next supplier that can be asked"
        raise OperatorError(f"Nothing was moved: {reasons}")
    return Rerouted(esims, len(orders), sorted(suppliers), left, found.more)
