"""What does a supplier that fails stop, and where can what waits for it be sent?"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from dealer_server.console.shared import params
from dealer_server.console.shared.incidents import Act, Effect, IncidentRow
from dealer_server.console.shared.permissions import permissions
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.orders import reroute
from dealer_server.operations.orders.reroute import Moves
from dealer_server.rules.incidents import impact as rules
from dealer_server.rules.incidents.impact import Impact
from dealer_server.store.console.incidents import impact


class Found(NamedTuple):
    """By supplier: what it stops where it is down or paused, and what can be sent elsewhere."""

    impacts: Mapping[str, Impact]
    moves: Mapping[str, Moves]


async def find(connection: Connection, context: RequestContext, rows: Sequence[IncidentRow]) -> Found:
    """Of those suppliers that incidents are about."""
    failing = [row.incident for row in rows if row.incident.kind == "SUPPLIER"]
    down = [one.subject for one in failing if one.level == "fault"]
    impacts = await impact.impacts(connection, down, rules.first_day(context.now)) if down else {}
    moves = {code: await reroute.movable(connection, code) for one in failing if "," not in (code := one.subject)}
    return Found(impacts, moves)


def with_impact(row: IncidentRow, found: Found, context: RequestContext) -> IncidentRow:
    supplier = row.incident.subject
    if row.incident.kind != "SUPPLIER":
        return row
    moves = found.moves.get(supplier) if permissions(context.user).support else None
    stopped = found.impacts.get(supplier)
    return row._replace(
        impact=_effects(supplier, stopped, context) if stopped else (),
        act=_act(supplier, moves) if moves and moves.moves else None,
    )


def _effects(supplier: str, stopped: Impact, context: RequestContext) -> list[Effect]:
    first = {"supplier": supplier, "status": "ON_SALE"}
    text = f"{many(stopped.packages, 'package')} {'go' if stopped.packages > 1 else 'goes'} there first"
    found = [Effect(text, params.address("/console/packages", first))]
    if stopped.alone:
        some = f"{stopped.alone:,} {'have' if stopped.alone > 1 else 'has'}" if stopped.packages > 1 else "it has"
        text = f"{some} no other supplier"
        found.append(Effect(text, params.address("/console/packages", first | {"route": "alone"}), bad=True))
    days = {"from": f"{rules.first_day(context.now)}", "to": f"{context.now.date()}"}
    report = params.address("/console/reports", {"by": "package", "supplier": supplier, **days})
    return [*found, Effect(f"{rules.rate_text(stopped.sold, context.now)}", report)]


def _act(supplier: str, moves: Moves) -> Act:
    waiting = many(len(moves.moves), "waiting item")
    to = moves.suppliers[0] if len(moves.suppliers) == 1 else f"{len(moves.suppliers)} suppliers"
    text = f"Each is bought from the next supplier of its route: {', '.join(moves.suppliers)}."
    if moves.more:
        text += f" The {reroute.MOST} that have waited longest go first."
    text += " What may have been bought already stays, and so does the price that dealers pay."
    return Act(f"Send {waiting} to {to}", text, f"/console/suppliers/{quote(supplier, safe=':')}/reroute")
