"""How does one dealer's endpoint answer, and what is sent there? With a test event."""

from typing import Any

from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.webhooks.endpoints import ENDPOINTS, answer_faults, day, options
from dealer_server.console.shared import params, words
from dealer_server.console.shared.incidents import receiver_health
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.params import CREATED, NEWEST_FIRST
from dealer_server.console.shared.permissions import OPERATOR_SUPPORT, OPERATORS
from dealer_server.console.shared.request_context import Html, NotFound, RequestContext
from dealer_server.console.shared.timeline import event_text
from dealer_server.db.connection import Connection
from dealer_server.rules import period
from dealer_server.rules.period import Period
from dealer_server.rules.webhooks import answers as rules
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders, user
from dealer_server.store.console import webhooks as store
from dealer_server.store.console.pages import ListPage
from dealer_server.store.console.webhooks import DeliveryRow, Wanted
from dealer_server.store.webhooks import answers, endpoints, recent, signer
from dealer_server.store.webhooks.answers import Answered, Latency
from dealer_server.store.webhooks.dialects import EVENT_TYPES
from dealer_server.webhooks import sample_event
from dealer_server.webhooks.sample_event import TestResult

ENDPOINT, TEMPLATE = f"{ENDPOINTS}/{{tenant_id}}", "operator/endpoint.html"
ROWS = 10
"""Deliveries on a page, below its charts."""
UNHEALTHY = ("Failing", "Degraded")
"""Of such an endpoint the deliveries with failed attempts are listed first."""
PEOPLE = 20
"""Of so many users one is looked for who has an address."""


@page(ENDPOINT, OPERATORS, TEMPLATE, listing=True)
async def show_endpoint(context: RequestContext) -> Html:
    return await _show(context)


@action(f"{ENDPOINT}/test", OPERATOR_SUPPORT, TEMPLATE)
async def test(context: RequestContext) -> Html:
    """Sends a test event, as /webhook/test does, and shows the answer. Raises 200002 where no URL is set."""
    parts, tenant_id = context.parts, params.path_number(context, "tenant_id")
    async with parts.database.connection() as connection:
        dealer = await console_dealers.dealer(connection, tenant_id)
    if dealer is None:
        raise NotFound
    result = await sample_event.send(
        parts.database, parts.master_keys, parts.outbound, tenant_id, dealer.currency, context.now
    )
    return await _show(context, result)


async def _show(context: RequestContext, result: TestResult | None = None) -> Html:
    """`range`: which hours or days. `result`: what the endpoint answered to a test event."""
    tenant_id = params.path_number(context, "tenant_id")
    length: period.Range | None = params.one_of(context.query, "range", tuple(period.RECENT))
    of, path = period.period(length or "24h", None, None, context.now), ENDPOINT.format(tenant_id=tenant_id)
    async with context.parts.database.connection() as connection:
        dealer = await console_dealers.dealer(connection, tenant_id)
        endpoint = await endpoints.find(connection, tenant_id)
        if dealer is None:
            raise NotFound
        history = rules.history(await answers.hours(connection, tenant_id, of.start), of)
        today = (await answers.of_dealers(connection, [tenant_id], day(context).start)).get(tenant_id, Answered())
        health = receiver_health(endpoint, today.accepted, today.attempts)
        waiting = await recent.unfinished(connection, tenant_id, store.COUNTED)
        undelivered = (await store.counts(connection, tenant_id))["FAILED"]
        people = await user.listed(connection, tenant_id, limit=PEOPLE)
        return Html(
            dealer=dealer,
            endpoint=endpoint,
            health=health,
            today=today,
            incidents=await findings.of_receiver(connection, context, tenant_id, today),
            signer=await signer.load(connection, tenant_id),
            test_result=result,
            waiting=waiting,
            ended_well=not waiting and not undelivered,
            mail=next((one.mail for one in people if one.mail and one.status == "ACTIVE"), ""),
            most_waiting=store.COUNTED,
            period=of,
            answer_text=words.answer,
            event_text=event_text,
            ranges=[
                (title, params.address(path, {"range": name}), of.name == name) for name, title in period.RECENT.items()
            ],
            history=history,
            path=path,
            **await _causes(connection, tenant_id, of),
            **await _deliveries(
                connection, context, path, of, [one.filter for one in history.answers], unhealthy=health in UNHEALTHY
            ),
        )


async def _deliveries(
    connection: Connection, context: RequestContext, path: str, of: Period, known: list[str], *, unhealthy: bool
) -> dict[str, Any]:
    """`answer`: those whose last attempt was answered so. `attempts`: "failed" for those with one that failed, which
    are listed first of a `unhealthy` endpoint, or "all". `known`: the answers of the period."""
    query, tenant_id = context.query, params.path_number(context, "tenant_id")
    chosen, attempts = params.text(query, "answer"), query.get("attempts")
    tried = attempts == "failed" or (attempts != "all" and unhealthy and not chosen)
    order, found = params.order(context, path, CREATED, NEWEST_FIRST), ListPage[DeliveryRow]((), None)
    faults = params.faults(query, event=EVENT_TYPES) | answer_faults(query)
    if not faults:
        event = params.one_of(query, "event", EVENT_TYPES)
        wanted = Wanted(tenant_id, event_type=event, start=of.start, tried=tried, answer=chosen)
        seen = params.number(query, "before")
        found = await store.deliveries(connection, wanted, seen, ROWS, context.now, oldest_first=not order.descending)
    packages = await orders.packages_of(connection, [(one.tenant_id, one.order_id) for one in found.rows])
    bare = not (faults or tried or chosen or query.get("event"))
    total = await store.count(connection, tenant_id, of.start, context.now) if bare else None
    kept = {"range": of.name, "event": query.get("event"), "answer": chosen}
    return {
        "tabs": [
            ("all", params.address(path, kept | {"attempts": "all"}) + "#deliveries"),
            ("failed", params.address(path, kept | {"attempts": "failed"}) + "#deliveries"),
        ],
        "tried": tried,
        "events": EVENT_TYPES,
        "options": options(chosen or "", known),
        "chosen": chosen or "",
        "faults": faults,
        "deliveries": found.rows,
        "packages": packages,
        "order": order,
        "pager": params.pager(
            context,
            path,
            found.next,
            shown=len(found.rows),
            word="delivery",
            total=total,
            most=store.COUNTED,
            size=ROWS,
        ),
    }


async def _causes(connection: Connection, tenant_id: int, of: Period) -> dict[str, Any]:
    """How long attempts took, all together and by hour or day, and the last one of each way to fail."""
    failures = await answers.last_failures(connection, tenant_id, of.start)
    by_start = await answers.latencies(connection, tenant_id, of.start, of.bucket)
    times = period.starts(of)
    took = [by_start.get(at, Latency()) for at in times]
    return {
        "latency": await answers.latency(connection, tenant_id, of.start),
        "times": times,
        "unfinished": of.open and took[-1].p50 is not None,
        "took": [("p50", [one.p50 for one in took]), ("p95", [one.p95 for one in took])],
        "failures": {rules.word(one.http_status, one.error): one for one in failures},
        "advice": rules.advice,
    }
