"""How do dealers' endpoints answer? All of them, the worst first; and which answers a filter means."""

from collections.abc import Mapping, Sequence

from dealer_server.console.shared import params, words
from dealer_server.console.shared.page import page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.rules import period
from dealer_server.rules.incidents.receiver import ORDER, Health, health
from dealer_server.rules.period import Period
from dealer_server.rules.webhooks import answers as rules
from dealer_server.store.console import webhooks as store
from dealer_server.store.console.webhooks import EndpointRow

ENDPOINTS = "/console/webhooks/endpoints"
MOST_ENDPOINTS = 1_000_000


@page(ENDPOINTS, OPERATORS, "operator/endpoints.html", listing=True)
async def list_endpoints(context: RequestContext) -> Html:
    """`all`: dealers without an endpoint too."""
    offset, every = min(params.number(context.query, "before") or 0, MOST_ENDPOINTS), "all" in context.query
    async with context.parts.database.connection() as connection:
        found = await store.endpoints(connection, offset, PAGE_SIZE + 1, day(context).start, with_none=every)
        without = await store.dealers_with_none(connection)
    following = offset + PAGE_SIZE if len(found) > PAGE_SIZE else None
    shown, word = min(len(found), PAGE_SIZE), "dealer" if every else "endpoint"
    return Html(
        endpoints=with_health(found[:PAGE_SIZE]),
        every=every,
        without=without,
        pager=params.pager(context, ENDPOINTS, following, shown=shown, word=word),
    )


def day(context: RequestContext) -> Period:
    """The last 24 hours, whose attempts say how healthy an endpoint is."""
    return period.period("24h", None, None, context.now)


def with_health(rows: Sequence[EndpointRow]) -> Sequence[tuple[EndpointRow, Health]]:
    """The worst first."""
    found: list[tuple[EndpointRow, Health]] = [
        (row, health(row.state, row.consecutive_failures, row.last_success_at, row.accepted, row.attempts))
        for row in rows
    ]
    return sorted(found, key=lambda one: ORDER.index(one[1]))


def answer_faults(query: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with the filter by answer."""
    typed = query.get("answer", "").strip()
    return {} if not typed or rules.known(typed) else {"answer": f"“{typed[:40]}” is not 500, 5xx or NONE"}


def options(chosen: str, others: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Of a filter by answer: kinds of statuses and `others`, and the chosen one in any case."""
    known = [*dict.fromkeys((*rules.KINDS, rules.NONE, *others, *[chosen] * bool(chosen)))]
    return [("", "Any response"), *((word, words.answer(word)) for word in known)]
