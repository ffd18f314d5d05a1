"""What an operator does on the console's pages, and the orders that need one."""

import asyncio
import re
from html import unescape

import httpx2

from dealer_server.rules.orders import identity
from dealer_server.store.console import audit as console_audit
from support.api_client import ApiClient, Service
from support.browser import Browser
from support.patience import PATIENCE
from support.webhook_fixture import Receiver, answer


async def see(browser: Browser, path: str) -> str:
    """A page that opens, as text."""
    answered = await browser.get(path)
    assert answered.status_code == 200, f"{path}: {answered.status_code} {answered.headers.get('location', '')}"
    return text_of(answered.text)


async def fill(browser: Browser, path: str, files: dict[str, bytes] | None = None, **form: str) -> httpx2.Response:
    """A form with what protects it."""
    return await browser.post(path, form, files)


async def does(browser: Browser, path: str, **form: str) -> str:
    """A write and the page it leads to, as text."""
    answered = await fill(browser, path, **form)
    assert answered.status_code == 303, f"{path}: {answered.status_code}"
    return await see(browser, answered.headers["location"])


def text_of(html: str) -> str:
    """What a reader sees, blanks as one."""
    plain = re.sub(r"<(script|style|head).*?</\1>", " ", html, flags=re.DOTALL)
    whole = re.sub("</?mark>", "", plain)  # a part of a word
    return " ".join(unescape(re.sub("<[^>]+>", " ", whole)).split())


async def acts(service: Service, action: str) -> list[console_audit.Act]:
    async with service.database.connection() as connection:
        return (await console_audit.list_acts(connection, console_audit.ActFilter(action=action), None, 50)).rows


async def failed_for_good(service: Service, dealer: ApiClient, receiver: Receiver) -> str:
    """An order whose events its receiver never took; the orderNo."""
    receiver.answers = [answer(500, body=b"out of paper")]
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order_no: str = (await dealer.order()).data["orderNo"]
    await dealer.delivered(order_no)
    async with service.database.connection() as connection, asyncio.timeout(PATIENCE):
        # its first attempt was answered once one of its deliveries waits for the next
        while not await connection.fetch(
            "UPDATE webhook_delivery SET state = 'FAILED', due_at = NULL, claim = NULL, finished_at = now()"
            " WHERE tenant_id = $1 AND state = 'RETRY' RETURNING delivery_id",
            dealer.tenant_id,
        ):
            await asyncio.sleep(0.01)
    return order_no


async def park(service: Service, client: ApiClient, order_no: str | None = None) -> tuple[str, str]:
    """A purchase that nobody knows about, of a new order or of this one: its order's number and its unit."""
    order_no = order_no or (await client.order()).data["orderNo"]
    order_id = identity.order_id(order_no)
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state,"
            " reason, unknown_since, created_at, recharges) SELECT tenant_id, profile_id, 0, order_id, 0,"
            " 'U-' || profile_id, 'rt:near', 'SKU', 'PARKED', 'no answer that counts', now(), now(), recharges"
            " FROM profile WHERE order_id = $1",
            order_id,
        )
        unit: str = await connection.fetchval("SELECT unit_key FROM purchase WHERE order_id = $1", order_id)
    return order_no, unit
