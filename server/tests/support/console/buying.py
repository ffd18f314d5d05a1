"""How a dealer's user buys at the console's pages."""

import re
from collections.abc import Mapping
from html import unescape
from urllib.parse import urlencode

from dealer_server.rules.orders import identity
from dealer_server.store.console.audit import Act
from support.api_client import ApiClient, Service
from support.browser import Browser
from support.console.operator_pages import acts, see

HEADER = "packageCode,quantity,periodNum,remark,reference"


def hidden(html: str, action: str) -> dict[str, str]:
    """What the form of this action holds before anybody fills it in."""
    _, _, inside = html.partition(f'action="{action}"')
    return {
        name: unescape(value)
        for name, value in re.findall(
            r'<input type="hidden" name="(\w+)" value="([^"]*)"', inside.partition("</form>")[0]
        )
    }


async def asked(browser: Browser, package_code: str = "TEST-OK", **filled: object) -> str:
    """The address of the page that asks whether to buy it."""
    page = (await browser.get(f"/console/catalogue/{package_code}")).text
    return f"/console/buy?{urlencode({**hidden(page, '/console/buy'), 'quantity': 1, **filled})}"


async def form(browser: Browser, address: str) -> dict[str, str]:
    """The form that pays, with all that it holds."""
    page = (await browser.get(address)).text
    typed = re.search(r'<input [^>]*value="([^"]*)"[^>]* id="field-remark"', page)
    return hidden(page, "/console/buy") | ({"remark": unescape(typed[1])} if typed else {})


async def buy(browser: Browser, address: str, fields: Mapping[str, str]) -> str:
    """Sends the form of this page; where it leads to."""
    answer = await browser.send("/console/buy", fields, Referer=f"{browser.url}{address}")
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def uploaded(browser: Browser, *lines: str) -> str:
    """The page of a file with these lines."""
    header = HEADER + ",buyerEmail" * (lines[0].count(",") == HEADER.count(",") + 1)
    answer = await browser.post("/console/bulk", {"text": "\n".join((header, *lines))})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def bulk_form(browser: Browser, page: str) -> dict[str, str]:
    """The form that buys what is left of a file."""
    return hidden((await browser.get(page)).text, f"{page}/buy")


async def bought_in_bulk(browser: Browser, page: str) -> str:
    """Buys what is left of a file; the page as text."""
    answer = await browser.send(f"{page}/buy", await bulk_form(browser, page), Referer=f"{browser.url}{page}")
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    return await see(browser, page)


async def order_count(dealer: ApiClient) -> int:
    return (await dealer.post("/esim/order/list")).data["pager"]["total"]


async def balance(dealer: ApiClient) -> str:
    return (await dealer.post("/account/balance")).data["balance"]


async def acts_of(service: Service, dealer: ApiClient, action: str) -> list[Act]:
    return [act for act in await acts(service, action) if act.tenant_id == dealer.tenant_id]


async def out_of_stock(service: Service, dealer: ApiClient, order_no: str) -> None:
    """Why an order failed."""
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state,"
            " reason, created_at, finished_at) SELECT tenant_id, profile_id, 0, order_id, line, 'unit', 'simulated',"
            " '', 'REJECTED', 'OUT_OF_STOCK: none left', now(), now() FROM profile"
            " WHERE tenant_id = $1 AND order_id = $2",
            int(dealer.tenant_id),
            identity.order_id(order_no),
        )
