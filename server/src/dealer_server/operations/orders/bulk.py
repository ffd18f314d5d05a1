"""Many orders from one file of a dealer's user: kept, looked at, placed, and continued after anything.

Each line is an order of its own, whose transactionId is made of the file and the line: whatever is sent again, and
whatever died in between, a line is bought once (docs/decisions/0039-buying.md).
"""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server import failpoints
from dealer_server.audit_context import Actor
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.orders.buy import bought_line, mailed
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.operations.profiles.mail_install_page import checked
from dealer_server.rules.install.languages import DEFAULT
from dealer_server.rules.money import money
from dealer_server.rules.orders import bulk as rules
from dealer_server.rules.orders.bulk import BulkFile, BulkLine, RefuseMail
from dealer_server.rules.orders.order import Placed, Repeated
from dealer_server.rules.orders.pricing import PriceList
from dealer_server.rules.refusal import OutcomeUnknown, Refusal
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.orders import bulk as store_bulk
from dealer_server.store.orders import order as store_order
from dealer_server.store.orders.bulk import Bulk, RefusedLine
from dealer_server.store.tenants import tenant
from dealer_server.store.wallets import wallet as wallets


class BulkNotFound(Exception):
    """The dealer has no such file, or none any more."""


class Quote(NamedTuple):
    """What a file costs now. `prices`: of one, or of one day, of each line that is left to buy; None where it is not on
    sale. `orders`: the orderId of each line that was bought. `total`: of what is left and can be bought. `seen` changes
    with any price."""

    bulk: Bulk
    lines: Sequence[BulkLine]
    orders: Mapping[int, int]
    prices: Mapping[int, int | None]
    refused: Mapping[int, RefusedLine]
    currency: str
    total: int
    available: int
    seen: str

    @property
    def left(self) -> list[BulkLine]:
        """What can still be bought."""
        return [line for line in self.lines if self.prices.get(line.line) is not None]


class Bought(NamedTuple):
    """How many orders were placed, were there before, were refused, and whose outcome is not known."""

    placed: int
    repeated: int
    refused: int
    unknown: int


async def read_bulk(
    database: Database, catalogue: Catalogue, tenant_id: int, text: str, no_mail_reason: str, author: str, now: datetime
) -> tuple[BulkFile, int | None]:
    """What a file holds. One without a fault is kept, and has a number then; nothing is bought. `no_mail_reason`: why
    no install page can be mailed, "" where it can."""
    async with database.connection() as connection:
        prices = await tenant.load_prices(connection, tenant_id)
    found = rules.read(text, lambda code: catalogue.offer(code, prices), _mail_check(no_mail_reason))
    if found.faults:
        return found, None
    bought = [line[1:] if line.mail else line[1:6] for line in found.lines]
    digest = hashlib.sha256(repr(bought).encode()).digest()
    async with database.transaction() as connection:
        token = secrets.token_hex(8)
        return found, await store_bulk.add(connection, tenant_id, token, digest, found.lines, author, now)


def _mail_check(no_mail_reason: str) -> RefuseMail:
    def refuse(mail: str, language: str) -> tuple[str, str] | None:
        if no_mail_reason:
            return "buyerEmail", f"{no_mail_reason}: leave it empty"
        try:
            checked(mail, language or DEFAULT)
        except OperatorError as why:
            return "language" if why.field == "language" else "buyerEmail", str(why)
        return None

    return refuse


async def quote_bulk(connection: Connection, catalogue: Catalogue, tenant_id: int, bulk_id: int) -> Quote:
    """Raises BulkNotFound."""
    bulk = await store_bulk.find(connection, tenant_id, bulk_id)
    if bulk is None:
        raise BulkNotFound
    lines = await store_bulk.lines(connection, tenant_id, bulk_id)
    keys = {(tenant_id, rules.transaction_id(bulk.token, line.line)): line.line for line in lines}
    orders = {keys[key]: order_id for key, order_id in (await store_order.ids(connection, list(keys))).items()}
    refused = await store_bulk.refused(connection, tenant_id, bulk_id)
    prices = await tenant.load_prices(connection, tenant_id)
    wallet = await wallets.load(connection, tenant_id)
    now = {line.line: _price(catalogue, prices, line) for line in lines if line.line not in orders}
    amounts = [line.amount(price) for line in lines if (price := now.get(line.line)) is not None]
    return Quote(
        bulk=bulk,
        lines=lines,
        orders=orders,
        prices=now,
        refused={line: why for line, why in refused.items() if line not in orders},
        currency=prices.currency,
        total=sum(amounts),
        available=wallet.available,
        seen=rules.seen(now.items()),
    )


def _price(catalogue: Catalogue, prices: PriceList, line: BulkLine) -> int | None:
    offer = catalogue.offer(line.package_code, prices)
    return None if offer is None else offer.price


async def place_bulk(
    database: Database,
    catalogue: Catalogue,
    orders: OrderBatcher,
    tenant_id: int,
    bulk_id: int,
    seen: str,
    no_mail_reason: str,
    actor: Actor,
    now: datetime,
) -> Bought:
    """Places what is left of a file, at the prices that the person has `seen`; install pages are mailed to the buyers
    that it names, unless there is a `no_mail_reason`, as of `read_bulk`. Raises BulkNotFound, OperatorError."""
    async with database.transaction() as connection:
        quote = await quote_bulk(connection, catalogue, tenant_id, bulk_id)
        prices = await tenant.load_prices(connection, tenant_id)
        if not quote.left:
            raise OperatorError("There is nothing left to buy.")
        if no_mail_reason and any(line.mail for line in quote.left):
            raise OperatorError(f"This file mails install pages, but {no_mail_reason}. Nothing was bought.")
        if quote.seen != seen:
            raise OperatorError("What is left, or its prices, has changed. Nothing was bought; please look again.")
        if quote.total > quote.available:
            raise OperatorError("Your balance does not cover the total. Nothing was bought.")
        await store_bulk.confirm(connection, tenant_id, bulk_id, now)
        await record_act(connection, actor.author, "orders.bulk", tenant_id, _detail(quote))
    failpoints.hit("bulk.confirmed")
    results = await _submit(catalogue, prices, orders, tenant_id, quote)
    refused = [
        RefusedLine(line.line, why.code, why.message)
        for line, why in zip(quote.left, results, strict=True)
        if isinstance(why, Refusal)
    ]
    if refused:
        async with database.transaction() as connection:
            await store_bulk.record_refused(connection, tenant_id, bulk_id, refused)
    unknown = sum(isinstance(why, OutcomeUnknown) for why in results)
    return Bought(
        placed=sum(isinstance(done, Placed) for done in results),
        repeated=sum(isinstance(done, Repeated) for done in results),
        refused=len(refused) - unknown,
        unknown=unknown,
    )


def _detail(quote: Quote) -> dict[str, object]:
    """For the audit log."""
    return {
        "bulk": quote.bulk.bulk_id,
        "transactionIds": f"bulk-{quote.bulk.token}-",
        "orders": len(quote.left),
        "eSIMs": sum(line.quantity for line in quote.left),
        "mails": sum(line.quantity for line in quote.left if line.mail),
        "amount": money.text(quote.total, quote.currency),
        "currency": quote.currency,
    }


async def _submit(
    catalogue: Catalogue, prices: PriceList, orders: OrderBatcher, tenant_id: int, quote: Quote
) -> list[object]:
    """What became of each line that was left, in their order. Raises what is no refusal."""
    requests = [
        (
            line,
            bought_line(
                tenant_id,
                catalogue,
                prices,
                transaction_id=rules.transaction_id(quote.bulk.token, line.line),
                package_code=line.package_code,
                quantity=line.quantity,
                period_num=line.period_num,
                price=quote.prices[line.line] or 0,
                remark=line.remark or None,
            ),
        )
        for line in quote.left
    ]
    submitted = [
        orders.submit(mailed(order, line.mail, checked(line.mail, line.language or DEFAULT)) if line.mail else order)
        for line, order in requests
    ]
    results: list[object] = list(await asyncio.gather(*submitted, return_exceptions=True))
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Refusal):
            raise result
    return results
