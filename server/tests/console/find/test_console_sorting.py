"""Lists are ordered by the links in their heads, and pages continue in that order."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import date
from functools import partial
from html import unescape
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.db.connection import Connection
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.store.console import orders, packages, profiles, queues, user, webhooks
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.console.packages import PackageFilter
from dealer_server.store.console.profiles import ProfileFilter
from dealer_server.store.console.webhooks import Wanted
from dealer_server.store.suppliers.purchase import Hop
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import failed_for_good
from support.money.refunds import bought
from support.money.refunds import profiles as profiles_of
from support.webhook_fixture import listening

LISTS = {
    "/console/orders": {"created": "descending"},
    "/console/profiles": {"created": "descending"},
    "/console/webhooks": {"created": "descending"},
    "/console/topups": {"created": "ascending"},
    "/console/topups?status=ALL": {"created": "descending"},
    "/console/refunds?status=ALL": {"created": "descending"},
    "/console/packages": {
        **dict.fromkeys(("code", "supplier", "cost", "price", "margin"), ""),
        "sold": "descending",
        "revenue": "",
    },
    "/console/suppliers": {
        "code": "",
        "health": "ascending",
        **dict.fromkeys(("balance", "packages"), ""),
    },
    "/console/price-lists": {"name": "", "exceptions": "", "dealers": "", "revenue": "descending"},
    "/console/users": {"name": "", "role": "", "seen": ""},
    "/console/dealers": {"name": "", "turnover": "descending", "balance": "", "orders": ""},
}
"""By path the columns that it can be ordered by, and how it is without being asked."""
OF_DEALERS = {
    "/console/orders": LISTS["/console/orders"],
    "/console/profiles": {"ends": "", "created": "descending"},
}
SAME_END = tuple(f"packages by {order}" for order in ("cost", "margin", "price", "sold", "revenue"))
"""What is equal stands by name, and what is not known last, whichever way round."""
HEAD = re.compile(
    r'<th(?: class="[^"]*")?(?: aria-sort="(\w+)")?(?: data-short="[^"]*")?><a class="sort" href="([^"]*)">'
).findall


@pytest.fixture(scope="module")
async def seller(service: Service) -> AsyncIterator[ApiClient]:
    """A dealer with some of everything."""
    async with service.client(await service.tenant(balance="1000", qps=0)) as dealer:
        await _fill(service, dealer)
        yield dealer


async def _fill(service: Service, dealer: ApiClient) -> None:
    async with listening(1) as [receiver]:
        await failed_for_good(service, dealer, receiver)
    for number in range(3):
        order = (await dealer.order()).data
        await dealer.delivered(order["orderNo"])
        await dealer.post("/esim/refund", {"orderNo": order["orderNo"]})
        await dealer.post("/account/topup", {"amount": "5.00", "transactionId": f"T-{number}"})
    order = await bought(dealer)
    await dealer.post("/test/profile/advance", {"iccid": profiles_of(order)[0]["iccid"], "step": "START"})
    await set_route(service.database, "TEST-STOCKOUT", [Hop("stock", "TEST-STOCKOUT", 9_000, "USD")], "test", clock.now)
    async with signed_in(service) as admin:
        for name, markup in (("A list", "20"), ("b list", "10"), ("C list", "15")):
            await admin.post("/console/price-lists", {"name": name, "basis": "PRICE", "markup": markup})


@pytest.fixture
async def theirs(service: Service, seller: ApiClient) -> AsyncIterator[Browser]:
    """A user of this dealer."""
    async with signed_in(service, "admin", seller.tenant_id) as browser:
        yield browser


@pytest.mark.parametrize("path", LISTS)
async def test_the_heads_of_a_list_order_it_and_say_so(seller: ApiClient, admin: Browser, path: str) -> None:
    await heads_order(admin, path, LISTS[path])


@pytest.mark.parametrize("path", OF_DEALERS)
async def test_the_heads_of_a_dealers_lists_do_the_same(theirs: Browser, path: str) -> None:
    await heads_order(theirs, path, OF_DEALERS[path])


async def heads_order(browser: Browser, path: str, columns: dict[str, str]) -> None:
    html = (await browser.get(path)).text
    found = HEAD(html)
    if not found:
        assert path == "/console/suppliers" and "No supplier is connected yet" in html
        return
    assert [sort for sort, _ in found] == list(columns.values())
    for column, (_, href) in zip(columns, found, strict=True):
        for _ in range(2):
            page = await browser.get(unescape(href))
            assert page.status_code == 200, href
            now = HEAD(page.text)
            at = list(columns).index(column)
            assert [bool(sort) for sort, _ in now] == [other == at for other in range(len(now))]
            typed = re.search(r"sort=(-?)", unescape(href))
            default = columns[column]
            assert now[at][0] == ("descending" if typed and typed[1] else "ascending" if typed else default), href
            assert ("status=ALL" in href) == ("status=ALL" in path), "the filters stay"
            href = now[at][1]


@pytest.mark.parametrize("path", OF_DEALERS)
async def test_filters_and_saved_views_keep_the_order(
    seller: ApiClient, admin: Browser, theirs: Browser, path: str
) -> None:
    for browser in (admin, theirs):
        page = (await browser.get(f"{path}?from=2020-01-01&sort=created")).text
        assert '<input type="hidden" name="sort" value="created">' in page
        assert 'name="query" value="from=2020-01-01&amp;sort=created"' in page
        numbers = re.findall(rf'<tr data-href="{path}/(\w+)"', page)
        assert len(numbers) > 1 and numbers == sorted(numbers)
        form = {"path": path, "query": "from=2020-01-01&sort=created", "name": "Oldest"}
        saved = await browser.post("/console/views", form)
        assert saved.headers["location"] == f"{path}?from=2020-01-01&sort=created"
        view = (await browser.get(saved.headers["location"])).text
        assert re.findall(rf'<tr data-href="{path}/(\w+)"', view) == numbers


@pytest.mark.parametrize("path", OF_DEALERS)
async def test_a_dealers_pages_continue_in_the_order_of_its_list(service: Service, path: str) -> None:
    """Each row once, from the oldest to the newest, and back to the first page."""
    async with (
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
        signed_in(service, "admin", dealer.tenant_id) as browser,
    ):
        await bought(dealer, quantity=PAGE_SIZE)
        for _ in range(PAGE_SIZE + 5 if path == "/console/orders" else 5):
            await dealer.order()
        found: dict[str, list[list[str]]] = {"": [], "&sort=created": []}
        for sort, pages in found.items():
            href = f"{path}?from=2020-01-01{sort}"
            while href:
                html = (await browser.get(href)).text
                pages.append(re.findall(rf'<tr data-href="{path}/(\w+)"', html))
                following = re.search(r'rel="next" href="([^"]+)"', html)
                href = unescape(following[1]) if following else ""
            assert len(pages) == 2
            back = re.search(r'rel="prev" href="([^"]+)"', html)
            assert back
            first = (await browser.get(unescape(back[1]))).text
            assert re.findall(rf'<tr data-href="{path}/(\w+)"', first) == pages[0]
        newest, oldest = ([one for page in pages for one in page] for pages in found.values())
        assert oldest == sorted(oldest) == newest[::-1] and len(set(oldest)) == len(oldest) > PAGE_SIZE


Read = Callable[[Connection, Any, int], Awaitable[tuple[Sequence[Any], Any]]]
"""(connection, the one seen last, limit) to keys of rows, and after which the next page begins."""


def scanned(read: Any, filters: object, key: str, *, oldest_first: bool) -> Read:
    async def page(connection: Connection, seen: Any, limit: int) -> tuple[Sequence[Any], Any]:
        found = await read(connection, filters, seen, limit, oldest_first=oldest_first)
        return [getattr(row, key) for row in found.rows], found.next

    return page


def listed(read: Callable[[Connection, Any, int], Awaitable[Sequence[Any]]], key: Callable[[Any], Any]) -> Read:
    async def page(connection: Connection, seen: Any, limit: int) -> tuple[Sequence[Any], Any]:
        keys = [key(row) for row in await read(connection, seen, limit)]
        return keys, keys[-1] if keys else None

    return page


def by_time(read: Any, argument: object, key: str, *, oldest_first: bool) -> Read:
    return listed(
        lambda connection, seen, limit: read(connection, argument, seen, limit, oldest_first=oldest_first),
        lambda row: getattr(row, key),
    )


def reads(*, backwards: bool) -> dict[str, Read]:
    """Each list in each order; `backwards`: the other way round."""
    sent = partial(webhooks.deliveries, now=clock.now())
    found = {
        "orders": scanned(orders.list_orders, OrderFilter(), "order_id", oldest_first=backwards),
        "profiles": scanned(profiles.list_profiles, ProfileFilter(), "profile_id", oldest_first=backwards),
        "webhooks": scanned(sent, Wanted(), "delivery_id", oldest_first=backwards),
        "failed": scanned(sent, Wanted(state="FAILED"), "delivery_id", oldest_first=backwards),
        "topups": by_time(queues.topups, "PENDING", "topup_id", oldest_first=backwards),
        "all topups": by_time(queues.topups, None, "topup_id", oldest_first=backwards),
        "refunds": by_time(queues.refunds, None, "refund_id", oldest_first=backwards),
    }
    for order in packages.ORDERS:
        found[f"packages by {order}"] = listed(
            lambda connection, seen, limit, order=order: packages.list_packages(
                connection, PackageFilter(), seen, limit, order, descending=backwards, since=date(2000, 1, 1)
            ),
            lambda row: row.package.package_code,
        )
    for order in user.ORDERS:
        found[f"users by {order}"] = listed(
            lambda connection, seen, limit, order=order: user.listed(
                connection, None, seen, limit, order, descending=backwards
            ),
            lambda row: row.user_id,
        )
    return found


async def test_pages_continue_in_the_order_of_the_list(service: Service, seller: ApiClient) -> None:
    forwards, backwards = reads(backwards=False), reads(backwards=True)
    async with service.database.connection() as connection:
        for name in forwards:
            whole, _ = await forwards[name](connection, None, 10_000)
            size = max(2, len(whole) // 5)
            assert len(whole) == len(set(whole)) > 0, name
            turned, _ = await backwards[name](connection, None, 10_000) if name in SAME_END else (whole[::-1], None)
            assert sorted(turned) == sorted(whole)
            for read, expected in ((forwards[name], list(whole)), (backwards[name], list(turned))):
                found, seen = list[Any](), None
                for _ in range(len(whole) + 5):
                    keys, seen = await read(connection, seen, size)
                    found += keys
                    if seen is None:
                        break
                assert found == expected, name
