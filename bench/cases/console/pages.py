"""How long do pages of the console take with many orders stored? Fetched one after the other, as a person does."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, timedelta
from typing import NamedTuple

import httpx2

from bench.support import processes
from bench.support.failure import Failed
from bench.support.instance import Instance, Served
from bench.support.measure import Reading, percentiles
from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.operations.users import accounts
from dealer_server.operations.users.password import Passwords
from dealer_server.rules.orders import identity
from dealer_server.wiring import console

FETCHES = 20
MOST_EXPORTED = 1_000_000
NOBODY_BOUGHT = "TEST-STOCKOUT"
SEARCH = "search: "
REPORT = "report: "
PACKAGE = "TEST-OK"
DAYS = (30, 90, 365)
_SECONDS = 600
_WARMED_SECONDS = 2
Pages = Mapping[str, str]
"""Addresses by what they show."""


class Old(NamedTuple):
    """An order of long ago; its profile has the same id."""

    order_id: int
    transaction_id: str
    iccid: str


def measure(instance: Instance, database: str, served: Served) -> dict[str, Reading]:
    """By what it shows: every page of operators and of the hot dealer; and the export of all orders. The process has
    answered no page before."""
    return instance.run(database, lambda opened: _measured(instance, opened, served))


def slowest(readings: Mapping[str, Reading]) -> Reading:
    return max(readings.values(), key=lambda reading: reading["p50_ms"])


async def _measured(instance: Instance, opened: Database, served: Served) -> dict[str, Reading]:
    found: dict[str, Reading] = {}
    hot = instance.hot.tenant_id
    async with opened.connection() as connection:
        row = await connection.fetchrow(
            "SELECT order_id, transaction_id, iccid FROM orders JOIN profile USING (tenant_id, order_id)"
            " WHERE tenant_id = $1 ORDER BY order_id OFFSET 1000 LIMIT 1",
            hot,
        )
    assert row is not None
    async with _signed_in(opened, served, None) as operator:
        await asyncio.sleep(console.WARM_SECONDS + _WARMED_SECONDS)
        took = await _fetch(operator, "/console")
        found["overview, fresh process"] = {"p50_ms": took, "p99_ms": took, "max_ms": took}
        for title, address in _of_operators(instance, Old(*row)).items():
            found[title] = await _often(operator, address)
        found["export"] = await _exported(operator, served)
    async with _signed_in(opened, served, hot) as dealer:
        for title, address in _of_dealers(Old(*row)).items():
            found[f"dealer: {title}"] = await _often(dealer, address)
    return found


def _of_operators(instance: Instance, old: Old) -> Pages:
    order_no, hot = identity.order_no(old.order_id), instance.hot.tenant_id
    pages = {
        "overview": "",
        "overview, 30 days": "?range=30d",
        "waiting lines": "/waiting",
        "orders": "/orders",
        "orders of one dealer": f"/orders?dealer={instance.dealers[-1].tenant_id}",
        "orders by a status that none has": "/orders?status=FAILED",
        "orders by a package nobody bought": f"/orders?package={NOBODY_BOUGHT}",
        "orders, old": f"/orders?before={old.order_id}",
        "order": f"/orders/{order_no}",
        "profiles": "/profiles",
        "profiles by a state that none has": "/profiles?state=FAILED",
        "dealers": "/dealers",
        "dealer": f"/dealers/{hot}",
        "statement": f"/dealers/{hot}/statement",
        "packages": "/packages",
        "package": f"/packages/{PACKAGE}",
        "price lists": "/price-lists",
        "regions": "/regions",
        "webhooks": "/webhooks",
        "webhooks that failed": "/webhooks?status=FAILED",
        "top-ups": "/topups?status=ALL",
        "refunds": "/refunds?status=ALL",
        "suppliers": "/suppliers",
        "audit log": "/audit",
        "users": "/users",
    }
    return {title: f"/console{path}" for title, path in {**pages, **_reports(hot), **_searches(instance, old)}.items()}


def _reports(hot: int) -> Pages:
    reports = {
        f"{REPORT}{by}, {days} days": f"/reports?{_days(days)}&by={by.replace(' and ', '&then=')}"
        for days in DAYS
        for by in ("day", "dealer", "package", "supplier", "day and supplier", "dealer and package", "day and dealer")
    }
    return reports | {
        f"{REPORT}one dealer by package, {days} days": f"/reports?{_days(days)}&dealer={hot}&by=package"
        for days in DAYS
    }


def _searches(instance: Instance, old: Old) -> Pages:
    words = {
        "orderNo": identity.order_no(old.order_id),
        "transactionId": old.transaction_id,
        "ICCID": old.iccid,
        "profileId": str(old.order_id),
        "RT-RequestID": "5d3b5a18-e5bc-11f1-96a9-02fc00000001",
        "a dealer": instance.dealers[-1].app_key,
        "end of an ICCID": old.iccid[-6:],
        "beginning of a transactionId": old.transaction_id[:12],
        "part of a transactionId": old.transaction_id[-9:],
        "part of many": "stored",
        "a package": "TEST",
        "a supplier": "simul",
        "nothing": "no-such-thing",
        "nothing, three characters": "zqx",
    }
    return {f"{SEARCH}{what}": f"/search?q={word}" for what, word in words.items()}


def _days(count: int) -> str:
    today = clock.now().astimezone(UTC).date()
    return f"from={today - timedelta(days=count - 1)}&to={today}"


def _of_dealers(old: Old) -> Pages:
    order_no = identity.order_no(old.order_id)
    pages = {
        "home": "",
        "orders": "/orders",
        "orders by a status that none has": "/orders?status=FAILED",
        "orders, old": f"/orders?before={old.order_id}",
        "order": f"/orders/{order_no}",
        "profiles": "/profiles",
        "profile": f"/profiles/{old.order_id}",
        "wallet": "/wallet",
        "webhooks": "/webhooks",
        "API log": "/api-log",
        "credentials": "/credentials",
        "catalogue": "/catalogue",
        "refunds": "/refunds",
        "statements": "/wallet/statements",
    }
    pages |= {
        f"{REPORT}{by}, {days} days": f"/reports?{_days(days)}&by={by}" for days in DAYS for by in ("day", "package")
    }
    pages |= {
        f"{SEARCH}part of a transactionId": f"/search?q={old.transaction_id[-9:]}",
        f"{SEARCH}nothing": "/search?q=zqx",
    }
    return {title: f"/console{path}" for title, path in pages.items()}


@asynccontextmanager
async def _signed_in(opened: Database, served: Served, tenant_id: int | None) -> AsyncIterator[httpx2.AsyncClient]:
    name, password = f"bench-{secrets.token_hex(4)}", secrets.token_urlsafe(12)
    await accounts.create(opened, Passwords(), tenant_id, name, "admin", "bench", password)
    async with httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=_SECONDS) as http:
        answer = await http.post("/console/sign-in", data={"name": name, "password": password})
        if answer.status_code != 303:
            raise Failed(f"signing in to the console: {answer.status_code}")
        yield http


async def _often(http: httpx2.AsyncClient, address: str) -> Reading:
    return percentiles([await _fetch(http, address) for _ in range(FETCHES)])


async def _fetch(http: httpx2.AsyncClient, address: str) -> float:
    """Milliseconds. A search may lead on to what was found; the time is of the search alone."""
    begun = time.perf_counter()
    answer = await http.get(address)
    took = (time.perf_counter() - begun) * 1000
    if answer.status_code != 200 and not (answer.status_code == 303 and "/search" in address):
        raise Failed(f"{address}: {answer.status_code} {re.sub('<[^>]*>', ' ', answer.text)[-500:]}")
    return took


async def _exported(http: httpx2.AsyncClient, served: Served) -> Reading:
    """Orders as a file, all or the first MOST_EXPORTED, and what the process holds after."""
    before = processes.memory([served.process.pid])
    lines, begun = 0, time.perf_counter()
    async with http.stream("GET", "/console/orders.csv") as answer:
        async for chunk in answer.aiter_bytes():
            lines += chunk.count(b"\n")
            if lines > MOST_EXPORTED:
                break
    seconds = time.perf_counter() - begun
    held = processes.memory([served.process.pid])
    rows = lines - 1
    return {
        "rows": rows,
        "seconds": seconds,
        "per_second": rows / seconds,
        "rss_before_mb": before.rss_mb,
        "rss_mb": held.rss_mb,
    }
