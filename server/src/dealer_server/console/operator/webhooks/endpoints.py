"""How do dealers' endpoints answer? All of them, the worst first; and one with its history."""

from collections.abc import Mapping, Sequence
from typing import Any

from dealer_server.console.operator.incidents import findings
from dealer_server.console.shared import params, words
from dealer_server.console.shared.incidents import receiver_health
from dealer_server.console.shared.page import page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST, PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, NotFound, RequestContext
from dealer_server.console.shared.timeline import event_text
from dealer_server.db.connection import Connection
from dealer_server.rules import dates, period
from dealer_server.rules.incidents.receiver import ORDER, Health, health
from dealer_server.rules.period import Period
from dealer_server.rules.webhooks import answers as rules
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import webhooks as store
from dealer_server.store.console.pages import ListPage
from dealer_server.store.console.webhooks import DeliveryRow, EndpointRow, Wanted
from dealer_server.store.webhooks import answers, endpoints, recent
from dealer_server.store.webhooks.answers import Answered

ENDPOINTS = "/console/webhooks/endpoints"
RANGES: tuple[period.Range, ...] = ("24h", "7d", "30d")
TITLES: Mapping[str, str] = {"24h": "24 hours", "7d": "7 days", "30d": "30 days"}
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
        sample=store.SAMPLE,
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


@page(f"{ENDPOINTS}/{{tenant_id}}", OPERATORS, "operator/endpoint.html", listing=True)
async def show_endpoint(context: RequestContext) -> Html:
    """`range`: which hours or days. `answer`: deliveries whose last attempt was answered so."""
    tenant_id, chosen = params.path_number(context, "tenant_id"), params.text(context.query, "answer")
    length: period.Range | None = params.one_of(context.query, "range", RANGES)
    of = period.period("24h" if length is None else length, None, None, context.now)
    path = f"{ENDPOINTS}/{tenant_id}"
    order, found = params.order(context, path, CREATED, NEWEST_FIRST), ListPage[DeliveryRow]((), None)
    faults = answer_faults(context.query)
    async with context.parts.database.connection() as connection:
        dealer = await console_dealers.dealer(connection, tenant_id)
        endpoint = await endpoints.find(connection, tenant_id)
        if dealer is None:
            raise NotFound
        history = rules.history(await answers.hours(connection, tenant_id, of.start), of)
        today = (await answers.of_dealers(connection, [tenant_id], day(context).start)).get(tenant_id, Answered())
        causes = await _causes(connection, tenant_id, of)
        if not faults:
            wanted = Wanted(tenant_id, start=of.start, answer=chosen)
            seen = params.number(context.query, "before")
            found = await store.deliveries(
                connection, wanted, seen, PAGE_SIZE, context.now, oldest_first=not order.descending
            )
        waiting = await recent.unfinished(connection, tenant_id, store.COUNTED)
        incidents = await findings.of_receiver(connection, context, tenant_id)
    return Html(
        dealer=dealer,
        endpoint=endpoint,
        health=receiver_health(endpoint, today.accepted, today.attempts),
        incidents=incidents,
        waiting=waiting,
        most_waiting=store.COUNTED,
        period=of,
        said_from=dates.minute(of.start),
        by="hour" if of.bucket == period.HOUR else "day" if of.bucket == period.DAY else "6 hours",
        answer_text=answer_text,
        event_text=event_text,
        ranges=[
            (TITLES[name], params.address(path, {"range": name, "answer": chosen}), of.name == name) for name in RANGES
        ],
        history=history,
        **causes,
        options=options(chosen or "", [one.filter for one in history.answers]),
        chosen=chosen or "",
        faults=faults,
        deliveries=found.rows,
        order=order,
        pager=params.pager(context, path, found.next, shown=len(found.rows), word="delivery"),
        path=path,
    )


async def _causes(connection: Connection, tenant_id: int, of: Period) -> dict[str, Any]:
    """How long attempts took, and the last one of each way to fail."""
    failures = await answers.last_failures(connection, tenant_id, of.start)
    return {
        "latency": await answers.latency(connection, tenant_id, of.start),
        "failures": {rules.word(one.http_status, one.error): one for one in failures},
        "advice": rules.advice,
    }


def answer_faults(query: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with the filter by answer."""
    typed = query.get("answer", "").strip()
    return {} if not typed or rules.known(typed) else {"answer": f"“{typed[:40]}” is not 500, 5xx or NONE"}


def answer_text(word: str) -> str:
    """HTTP 500; Time-out."""
    if word == rules.NONE:
        return "No response"
    return f"HTTP {word}" if word[0].isdigit() else words.text(word)


def options(chosen: str, others: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Of a filter by answer: kinds of statuses and `others`, and the chosen one in any case."""
    known = [*dict.fromkeys((*rules.KINDS, rules.NONE, *others, *[chosen] * bool(chosen)))]
    return [("", "Any response"), *((word, answer_text(word)) for word in known)]
