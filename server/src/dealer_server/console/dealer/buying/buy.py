"""Buying one package by hand, and mailing it to its buyer. The form holds its transactionId: however often it is sent,
it buys once."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from dealer_server.audit_context import Actor
from dealer_server.console.dealer.buying import words
from dealer_server.console.dealer.buying.buyer import buyer_of
from dealer_server.console.dealer.buying.catalogue import CATALOGUE, new_transaction_id, view
from dealer_server.console.dealer.buying.instead import Instead, instead_of
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import DEALER_FINANCE, permissions
from dealer_server.console.shared.request_context import Answer, Html, Redirect, RequestContext
from dealer_server.console.shared.words import LANGUAGE_NAMES
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.orders.buy import bought_line, personal
from dealer_server.operations.orders.check import check_order
from dealer_server.operations.profiles.mail_install_page import check_mail, mail_install_pages
from dealer_server.rules.catalogue.choosing import OnSale
from dealer_server.rules.catalogue.package import Package, sold_by_day
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.bulk import REMARK_LENGTH
from dealer_server.rules.orders.order import Placed
from dealer_server.rules.orders.priced_lines import Offer
from dealer_server.rules.orders.pricing import PriceList
from dealer_server.rules.refusal import OutcomeUnknown, PriceDiffers, Refusal
from dealer_server.store.orders import order as store_order
from dealer_server.store.tenants import tenant
from esim_dealer.wire import calls

BUY = "/console/buy"
ENTERED = ("quantity", "days", "remark", "order")
UNSURE = "It is not known whether this was bought. Send the form again: however often it is sent, it buys once."
ASKED_AGAIN = "Nothing was bought. Please look at the order and confirm it again."
REPEATED = "This form was sent before. It was not processed again: this is the order that it placed."
_is_transaction_id = re.compile(r"console-[0-9a-f]{16}").fullmatch


class Wanted(NamedTuple):
    """What the form asks for. `days`: of a package that is sold by the day. `order`: in whose place it is sold, for the
    same buyer. `seen`: the price that the page showed."""

    package_code: str
    quantity: int
    days: int | None
    remark: str
    order: str
    transaction_id: str
    seen: str

    @property
    def back(self) -> str:
        """Of the page of the package, with what was entered there."""
        return _form_address(self.package_code, self._entered)

    @property
    def address(self) -> str:
        """Of the page that asks whether to buy it."""
        fields = {"package": self.package_code, **_in_address(self._entered)}
        return params.address(BUY, {**fields, "seen": self.seen, "transaction_id": self.transaction_id})

    @property
    def _entered(self) -> Mapping[str, object]:
        return {"quantity": self.quantity, "days": self.days, "remark": self.remark, "order": self.order}


class Mailing(NamedTuple):
    """To whom the install pages are mailed as soon as they are ready."""

    mail: str
    language: str


class Unclear(Exception):
    """The form cannot be read. The message says which field is wrong, and what is accepted."""


@page(BUY, DEALER_FINANCE, "dealer/buying/buy.html", within=CATALOGUE)
async def confirm(context: RequestContext) -> Answer:
    """What it costs, against the balance; for what cannot be bought, what can be sold in its place. A form that has
    bought leads to its order."""
    code = context.query.get("package", "")
    if not code:
        return Redirect(CATALOGUE)
    offer, prices = await _offer(context, code)
    if offer is None or offer.price is None:
        return await _not_for_sale(context, code, offer)
    if offer.package.type == "TOPUP":
        return Redirect(f"{CATALOGUE}/{code}")
    try:
        wanted = _wanted(context.query, offer.package)
    except Unclear as why:
        return Redirect(_form_address(code, context.query), str(why), failed=True)
    if wanted.transaction_id != context.query.get("transaction_id"):
        return Redirect(wanted.address)  # with one that a reload keeps
    if (order_no := await _ordered(context, wanted.transaction_id)) is not None:
        return Redirect(f"/console/orders/{order_no}", REPEATED)
    check = await check_order(
        context.parts.database, context.parts.catalogue(), prices, context.tenant_id, _check(wanted)
    )
    refused = check.would_refuse or None
    if refused and refused.code == "200011":
        return await _not_for_sale(context, code, offer, short=True)
    price, left = money.text(offer.price, prices.currency), None if refused else _left(check)
    buyer = await buyer_of(context, wanted.order)
    return Html(
        wanted=wanted,
        buyer=buyer._replace(remark=wanted.remark or buyer.remark),
        view=view(OnSale(offer.package, offer.price, "")),
        check=check,
        price=price,
        left=left,
        changed=wanted.seen not in ("", price),
        refused=words.plain(refused.code, refused.message, refused.data) if refused else "",
        short=bool(refused) and refused.code == "200007",
        mails=context.parts.settings.mails != "none",
        languages=LANGUAGE_NAMES,
    )


@action(BUY, DEALER_FINANCE)
async def place(context: RequestContext) -> Redirect:
    """As /esim/order does, at the price that the form showed; any other price is shown and asked for again."""
    offer, prices = await _offer(context, context.form.get("package", ""))
    if offer is None or offer.price is None:
        return Redirect(params.address(BUY, {"package": context.form.get("package"), **_in_address(context.form)}))
    try:
        wanted = _wanted(context.form, offer.package)
        price = money.parse(wanted.seen, prices.currency)
    except (Unclear, ValueError) as why:
        return Redirect(_form_address(offer.package.package_code, context.form), str(why), failed=True)
    if wanted.transaction_id != context.form.get("transaction_id"):
        return Redirect(wanted.address, ASKED_AGAIN, failed=True)
    mailing = _mailing(context)
    if mailing:
        await check_mail(context.parts.database, context.tenant_id, wanted.quantity, *mailing, context.now)
    try:
        order = bought_line(
            context.tenant_id,
            context.parts.catalogue(),
            prices,
            transaction_id=wanted.transaction_id,
            package_code=wanted.package_code,
            quantity=wanted.quantity,
            period_num=wanted.days,
            price=price,
            remark=wanted.remark or None,
        )
        decision = await context.parts.orders.submit(personal(order, Actor.current(context.author, None)))
    except OutcomeUnknown:
        return Redirect(wanted.address, UNSURE, failed=True, filled=True)
    except PriceDiffers:
        return Redirect(wanted.address, failed=True, filled=True)  # the page says it, with both prices
    except Refusal as why:
        return Redirect(wanted.address, f"Nothing was bought. {words.of(why)}", failed=True, filled=True)
    assert not isinstance(decision, Refusal), "a refusal is raised"
    address = f"/console/orders/{identity.order_no(decision.order_id)}"
    text = REPEATED
    if isinstance(decision, Placed):
        paid = money.shown(order.amount, order.currency)
        text = f"Bought {wanted.quantity} × {offer.package.package_name} for {paid}"
    if mailing and (problem := await _mail(context, decision.order_id, mailing)):
        return Redirect(address, f"{text}. Nothing is mailed: {problem}", failed=True)
    return Redirect(address, text)


def _mailing(context: RequestContext) -> Mailing | None:
    """None where nothing is to be mailed. The page holds codes, which not every user may have."""
    mail = params.text(context.form, "mail")
    if not mail or not permissions(context.user).secrets or context.parts.settings.mails == "none":
        return None
    return Mailing(mail, context.form.get("language", ""))


async def _mail(context: RequestContext, order_id: int, mailing: Mailing) -> str:
    """Mails its pages once they are ready; once, however often the form is sent. Why not, "" where it does."""
    key, parts = (context.tenant_id, order_id), context.parts
    async with parts.database.connection() as connection:
        order = (await store_order.load(connection, [key], parts.data_keys))[key]
    ids = [profile.profile_id for profile in order.profiles]
    try:
        await mail_install_pages(parts.database, *key, ids, *mailing, context.author, context.now, first=True)
    except OperatorError as why:
        return str(why)
    return ""


async def _not_for_sale(context: RequestContext, code: str, offer: Offer | None, *, short: bool = False) -> Html:
    """`short`: too few of it are in stock."""
    package = offer.package if offer else None
    found = (
        await instead_of(context, package, offer.price, _in_address(context.query)) if package and offer else Instead()
    )
    return Html(
        200 if package else 404,
        template="dealer/buying/not_for_sale.html",
        name=package.package_name if package else f"Package {code[:64]}",
        short=short,
        quantity=params.number(context.query, "quantity") or 1,
        others=found.others,
        place=package.location_code if package else "",
        place_name=package.location_name if package else "",
    )


def _form_address(package_code: str, fields: Mapping[str, object]) -> str:
    """Of the page of the package, whose form shows these fields."""
    return params.address(f"{CATALOGUE}/{package_code}", _in_address(fields))


def _in_address(fields: Mapping[str, object]) -> Mapping[str, object]:
    """What was entered, without an email: addresses are kept by browsers and proxies."""
    remark = fields.get("remark")
    return {name: fields.get(name) for name in ENTERED} | ({"remark": ""} if "@" in str(remark) else {})


async def _offer(context: RequestContext, package_code: str) -> tuple[Offer | None, PriceList]:
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
    return context.parts.catalogue().offer(package_code, prices), prices


async def _ordered(context: RequestContext, transaction_id: str) -> str | None:
    """The orderNo of the order that this form has placed."""
    key = context.tenant_id, transaction_id
    async with context.parts.database.connection() as connection:
        order_id = (await store_order.ids(connection, [key])).get(key)
    return None if order_id is None else identity.order_no(order_id)


def _left(check: calls.OrderCheck) -> str:
    """What can still be spent after it, its credit limit included as in the available balance."""
    return str(Decimal(check.available_balance) - Decimal(check.amount or 0))


def _check(wanted: Wanted) -> calls.CheckOrder:
    line: dict[str, object] = {"packageCode": wanted.package_code, "quantity": wanted.quantity}
    if wanted.days is not None:
        line["periodNum"] = wanted.days
    return call(calls.CheckOrder, items=[line])


def _wanted(fields: Mapping[str, str], package: Package) -> Wanted:
    """Raises Unclear."""
    daily, remark = sold_by_day(package.data_type), params.text(fields, "remark") or ""
    if len(remark) > REMARK_LENGTH:
        raise Unclear(f"Buyer has {len(remark)} characters; accepted: {REMARK_LENGTH} at most.")
    transaction_id = fields.get("transaction_id", "")
    return Wanted(
        package_code=package.package_code,
        quantity=_number(fields, "quantity", "Quantity", 1, package.max_quantity),
        days=_number(fields, "days", "Days", package.min_period_num, package.max_period_num) if daily else None,
        remark=remark,
        order=params.text(fields, "order") or "",
        transaction_id=transaction_id if _is_transaction_id(transaction_id) else new_transaction_id(),
        seen=fields.get("seen", ""),
    )


def _number(fields: Mapping[str, str], name: str, label: str, least: int, most: int) -> int:
    value = params.number(fields, name)
    if value is None or not least <= value <= most:
        shown = params.text(fields, name)
        raise Unclear(f"{label} is {f'{shown[:20]!r}' if shown else 'missing'}; accepted: {least} to {most}.")
    return value
