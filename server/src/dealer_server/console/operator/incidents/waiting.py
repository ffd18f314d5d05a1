"""The queues of suppliers: the lines that wait for their answers, the longest first. Each leads to its order, where
something can be done."""

from dealer_server.console.shared import params
from dealer_server.console.shared.page import page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.incidents import waiting
from dealer_server.store.console.suppliers import STATE_WORDS

WAITING = "/console/waiting"
LINES = 200


@page(WAITING, OPERATORS, "operator/waiting.html", within="/console/suppliers")
async def waiting_lines(context: RequestContext) -> Html:
    supplier = params.text(context.query, "supplier")
    state = params.one_of(context.query, "state", tuple(STATE_WORDS))
    async with context.parts.database.connection() as connection:
        lines = await waiting.lines(connection, supplier, state, LINES + 1)
        suppliers = await console_suppliers.list_suppliers(connection)
    return Html(
        lines=lines[:LINES],
        more=len(lines) > LINES,
        most=LINES,
        suppliers={row.code: row for row in suppliers},
        codes=sorted({row.code for row in suppliers} | ({supplier} if supplier else set[str]())),
        states=[("", "Any status"), *((word, text.capitalize()) for word, text in STATE_WORDS.items())],
        words=STATE_WORDS,
        filtered=bool(supplier or state),
        unconfirmed=state == "PARKED",
    )
