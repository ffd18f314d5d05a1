"""What does a search text find? Groups of links, each saying why it matched where it does not show it."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server import store
from dealer_server.console.shared import params, words
from dealer_server.console.shared.permissions import permissions
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.console.shared.words import State
from dealer_server.db.connection import Connection
from dealer_server.rules.catalogue import choosing
from dealer_server.rules.catalogue.choosing import Choice
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.orders import identity
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.price_lists.price_list import Cost
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import Period, day_of, month_of
from dealer_server.rules.search import query
from dealer_server.rules.search.query import Query
from dealer_server.store.console import dealers, packages, queues
from dealer_server.store.console import search as named
from dealer_server.store.console.packages import PackageFilter
from dealer_server.store.console.search import OrderFacts, ProfileHit
from dealer_server.store.notices import buyer_mails
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter
from dealer_server.store.search import find, lookup
from dealer_server.store.search.find import IccidHit, TextHit
from dealer_server.store.tenants import tenant

MOST, ALL = 8, 50
"""Hits of each kind, and of one kind that is looked at alone."""
MOST_LISTS = 3
FEW_DIGITS = 5
"""So many are the number of a webhook delivery by chance."""
SEARCH = "/console/search"
Kind = Literal["orders", "esims"]
"""Of which the search itself lists all."""


class Hit(NamedTuple):
    """A link. `why`: what matched, "" where the link shows it. `code`: its identifier, which is its name where it has
    no `title` and no `packages`. `dealer`: whose it is, for operators. `note`: of its texts what matched. `state`,
    `amount` and its `currency`, and `at`, when it was made, where there are any. Of packages, for operators: how many
    were `sold` in 30 days, and the `margin` of their price in hundredths of a percent, where a cost is known."""

    href: str
    why: str
    code: str = ""
    title: str = ""
    packages: tuple[tuple[str, int], ...] = ()
    dealer: str = ""
    about: str = ""
    note: str = ""
    state: State | None = None
    amount: int | None = None
    currency: str = ""
    at: datetime | None = None
    sold: int | None = None
    margin: int | None = None


class Columns(NamedTuple):
    """What the columns of a group are called: the hits themselves, their numbers or codes beside their names, what is
    told about them, and when they were made."""

    hit: str
    code: str = ""
    about: str = ""
    at: str = ""


COLUMNS: Mapping[str, Columns] = {
    "Orders": Columns("Order", "Number", "Reference", "Placed"),
    "eSIMs": Columns("eSIM", "ICCID", "Order", "Bought"),
    "Dealers": Columns("Dealer", "Number and AppKey", at="Created"),
    "Packages": Columns("Package", "Code"),
    "Regions": Columns("Region", "Code and packages"),
    "Orders and eSIMs by dealer": Columns("List"),
    "Suppliers": Columns("Supplier", about="Kind"),
    "Webhook deliveries": Columns("Delivery", about="Event", at="Created"),
    "Refused calls": Columns("Result code", about="Call", at="Time"),
}


class Group(NamedTuple):
    """`total`: how many match, such as 12, or 50+ where no more are counted. `more`: a list of all of them, where there
    are others."""

    name: str
    hits: Sequence[Hit]
    total: str
    more: str

    @property
    def columns(self) -> Columns:
        return COLUMNS[self.name]


class Part(NamedTuple):
    """Hits of one kind, of which the first are shown. `total`: how many match, None where there are no others than
    these; `uncounted`: there may be others all the same. `path`: a list that takes the text as a filter, with the
    parameter `kind`."""

    hits: Sequence[Hit]
    total: int | None = None
    path: str = ""
    kind: Kind | None = None
    uncounted: bool = False


class Found(NamedTuple):
    """`further`: the orderId before which a search further back begins; None where everything was searched."""

    groups: Sequence[Group]
    further: int | None

    @property
    def targets(self) -> set[str]:
        """The pages of single things. A short number is that of a delivery by chance: it is listed."""
        found = [(group.name, hit) for group in self.groups for hit in group.hits if "?" not in hit.href]
        return {hit.href for name, hit in found if name != "Webhook deliveries" or len(hit.code) > FEW_DIGITS}


async def hits(context: RequestContext, text: str, before: int | None, kind: Kind | None) -> Found:
    """`before`: only orders before this orderId, by their texts alone. `kind`: only these, ALL of them. Texts are read
    beside what is found by keys."""
    asked = query.read(text)
    if before is not None:
        of_texts, further = await _of_texts(context, asked, before)
        return Found(_groups(asked, ("Orders", Part(of_texts, uncounted=further is not None)), most=ALL), further)
    (whole, others), (of_texts, further) = await asyncio.gather(
        _by_keys(context, asked, kind), _of_texts(context, asked)
    )
    known = {hit.href for hit in whole}
    found = [*whole, *(hit for hit in of_texts if hit.href not in known)]
    orders = ("Orders", Part(found, path=SEARCH, kind="orders", uncounted=further is not None))
    if kind is None:
        return Found([*_groups(asked, orders), *others], further if len(found) <= MOST else None)
    return Found(_groups(asked, orders, most=ALL), further) if kind == "orders" else Found(others, None)


async def _by_keys(context: RequestContext, asked: Query, kind: Kind | None) -> tuple[list[Hit], list[Group]]:
    """Orders that are named whole, and the other groups, or those of this kind alone."""
    tenant_id, none = context.user.tenant_id, Part(())
    async with context.parts.database.connection() as connection:
        orders = await _orders(connection, tenant_id, asked)
        esims = ("eSIMs", await _profiles(connection, tenant_id, asked))
        if kind is not None:
            return orders, _groups(asked, esims, most=ALL) if kind == "esims" else []
        return orders, _groups(
            asked,
            esims,
            ("Dealers", await _dealers(connection, asked) if tenant_id is None else none),
            (
                "Packages",
                await (
                    _packages(connection, context, asked) if tenant_id is None else _offers(connection, context, asked)
                ),
            ),
            ("Regions", _regions(context, asked) if tenant_id is None else none),
            ("Orders and eSIMs by dealer", Part(await _lists_of(connection, asked)) if tenant_id is None else none),
            ("Suppliers", Part(await _suppliers(connection, asked)) if tenant_id is None else none),
            ("Webhook deliveries", Part(await _deliveries(connection, context, asked))),
            ("Refused calls", Part(await _refused_calls(connection, context, asked))),
        )


async def _of_texts(context: RequestContext, asked: Query, before: int | None = None) -> tuple[list[Hit], int | None]:
    """Orders that have the words, and before which orderId a search further back begins."""
    if not asked.words:
        return [], None
    tenant_id = context.user.tenant_id
    async with context.parts.database.connection() as connection:
        texts = await find.texts(connection, tenant_id, asked.words, before, ALL)
        if texts.further is not None and len(texts.hits) < ALL and before is None:
            older = await find.beginning(connection, tenant_id, asked.text, MOST)
            known = {hit.order_id for hit in texts.hits}
            texts = texts._replace(hits=[*texts.hits, *(hit for hit in older if hit.order_id not in known)])
        dealers = await named.names(connection, [hit.tenant_id for hit in texts.hits])
        facts = await _facts(connection, [(hit.tenant_id, hit.order_id) for hit in texts.hits])
    found = [
        _order(
            hit.order_id,
            facts,
            f"part of the {query.why(asked.words, hit.transaction_id, hit.remark)}",
            dealer=_whose(tenant_id, dealers[hit.tenant_id]),
            about=hit.transaction_id,
            note=_remark(hit, asked),
        )
        for hit in texts.hits
    ]
    return found, texts.further


async def _facts(connection: Connection, keys: Sequence[tuple[int, int]]) -> dict[int, tuple[OrderFacts, State]]:
    """Of orders, by tenant and orderId: what is told of them, and their state."""
    facts = await named.order_facts(connection, keys)
    refunding = [key for key in keys if key[1] in facts and facts[key[1]].order_status == "REFUNDING"]
    reviewed = await queues.reviewed_orders(connection, refunding)
    return {
        order_id: (one, words.order_state(one.order_status, one.delivery_status, in_review=order_id in reviewed))
        for order_id, one in facts.items()
    }


def _groups(asked: Query, *parts: tuple[str, Part], most: int = MOST) -> list[Group]:
    return [_group(name, part, asked.text, most) for name, part in parts if part.hits]


def _group(name: str, part: Part, text: str, most: int) -> Group:
    hits = [*dict.fromkeys(part.hits)]
    told = [hit._replace(why="") if _shows(hit, text) else hit for hit in hits[:most]]
    total = f"{part.total:,}" if part.total is not None else f"{len(hits)}{'+' if part.uncounted else ''}"
    more = part.path if len(hits) > most else ""
    return Group(name, told, total, params.address(more, {"q": text, "kind": part.kind}) if more else "")


def _shows(hit: Hit, text: str) -> bool:
    return text.lower() in f"{hit.title} {hit.code} {hit.dealer} {hit.about} {hit.note}".lower()


async def _orders(connection: Connection, tenant_id: int | None, asked: Query) -> list[Hit]:
    """Those that are named whole, or by the whole address of a dealer's own buyer."""
    whole = await named.orders(connection, tenant_id, identity.order_id(asked.text.upper()), asked.text)
    mailed = list[int]()
    if tenant_id is not None and "@" in asked.text:
        mailed = await buyer_mails.orders_to(connection, tenant_id, asked.text, MOST + 1)
    keys = [(order.tenant_id, order.order_id) for order in whole]
    facts = await _facts(connection, [*keys, *((tenant_id or 0, order_id) for order_id in mailed)])
    return [_order(order_id, facts, "buyer", note=f"Mailed to {asked.text}") for order_id in mailed] + [
        _order(
            order.order_id,
            facts,
            "transactionId" if order.transaction_id == asked.text else "orderNo",
            dealer=_whose(tenant_id, order.dealer),
            about=order.transaction_id,
        )
        for order in whole
    ]


def _order(
    order_id: int,
    facts: Mapping[int, tuple[OrderFacts, State]],
    why: str,
    *,
    dealer: str = "",
    about: str = "",
    note: str = "",
) -> Hit:
    order_no, at = identity.order_no(order_id), identity.created_at(order_id)
    hit = Hit(f"/console/orders/{order_no}", why, order_no, dealer=dealer, about=about, note=note, at=at)
    if order_id not in facts:
        return hit
    found, state = facts[order_id]
    return hit._replace(state=state, amount=found.amount, currency=found.currency, packages=found.lines)


def _remark(hit: TextHit, asked: Query) -> str:
    """ "" where something else matched."""
    return hit.remark[:80] if query.why(asked.words, hit.transaction_id, hit.remark) == "remark" else ""


def _whose(tenant_id: int | None, dealer: str) -> str:
    """An operator is told."""
    return dealer if tenant_id is None else ""


async def _profiles(connection: Connection, tenant_id: int | None, asked: Query) -> Part:
    whole = await named.profiles(connection, tenant_id, identity.profile_id(asked.text), asked.text)
    found: dict[int, tuple[ProfileHit | IccidHit, str]] = {
        one.profile_id: (one, "ICCID" if one.iccid == asked.text else "profileId") for one in whole
    }
    if asked.digits:
        for ending in await find.iccids(connection, tenant_id, asked.digits, ALL + 1):
            found.setdefault(ending.profile_id, (ending, "end of the ICCID"))
    keys = [(one.tenant_id, one.profile_id) for one, _ in found.values()]
    facts = await named.profile_facts(connection, keys)
    reviewed = await queues.reviewed_profiles(connection, keys)
    hits = [
        Hit(
            f"/console/profiles/{one.profile_id}",
            why,
            one.iccid or str(one.profile_id),
            dealer=_whose(tenant_id, one.dealer),
            about=identity.order_no(one.order_id),
            state=words.esim_state(facts[one.profile_id], in_review=one.profile_id in reviewed),
            packages=((facts[one.profile_id].package_code, 1),),
            at=identity.created_at(one.profile_id),
        )
        for one, why in found.values()
        if one.profile_id in facts
    ]
    return Part(hits[:ALL], path=SEARCH, kind="esims", uncounted=len(hits) > ALL)


async def _dealers(connection: Connection, asked: Query) -> Part:
    found = [
        Hit(
            f"/console/dealers/{dealer.tenant_id}",
            "name" if asked.text.lower() in dealer.name.lower() else "number or AppKey",
            f"{dealer.tenant_id} · {dealer.app_key}",
            dealer.name,
            state=_plain(dealer.status),
            at=dealer.created_at,
        )
        for dealer in await named.dealers(connection, asked.text)
    ]
    count = await dealers.count_dealers(connection, asked.text) if len(found) > MOST else None
    return Part(found, count, "/console/dealers")


async def _best_sellers(connection: Connection, context: RequestContext) -> list[str]:
    """What was bought most in this month and the one before, by the dealer or by all: the sums of months are few."""
    month = month_of(day_of(context.now))
    wanted = Filter(Period(month.before.period.first, month.period.last), context.user.tenant_id)
    rows = await report.grouped(connection, wanted, ["package"], ALL)
    return [row.keys["package"] for row in rows if row.sums.sold]


async def _packages(connection: Connection, context: RequestContext, asked: Query) -> Part:
    best = await _best_sellers(connection, context)
    found = [code for code, _ in await lookup.packages(connection, asked.text, MOST + 1, best)]
    known = await packages.by_code(connection, found)
    costs = await store.price_list.costs(connection, found)
    wanted = Filter(recent.shown(day_of(context.now)))
    rows = await report.among(connection, wanted, ("package",), found) if found else ()
    sold = {row.keys["package"]: row.sums.sold for row in rows}
    count = await packages.count_packages(connection, PackageFilter(asked.text)) if len(found) > MOST else None
    told = [
        Hit(
            f"/console/packages/{one.package_code}",
            "package code" if asked.text.lower() in one.package_code.lower() else "package name",
            one.package_code,
            one.package_name,
            state=_plain(one.status),
            amount=one.price,
            currency=one.currency,
            sold=sold.get(one.package_code, 0),
            margin=_margin(one, costs.get(one.package_code)),
        )
        for one in (known[code] for code in found if code in known)
    ]
    told.sort(key=lambda hit: (hit.code != asked.text, -(hit.sold or 0)))
    return Part(told, count, "/console/packages")


def _margin(package: Package, cost: Cost | None) -> int | None:
    known = price_list.current_cost(package, cost)
    return None if known is None else price_list.margin(package.price, known)


async def _offers(connection: Connection, context: RequestContext, asked: Query) -> Part:
    """Packages that a dealer can buy, at its prices."""
    if len(asked.text) < query.SHORTEST:
        return Part(())
    prices = await tenant.load_prices(connection, context.tenant_id)
    found = choosing.choose(context.parts.catalogue().on_sale(prices), Choice(words=asked.text))
    best = {code: at for at, code in enumerate(await _best_sellers(connection, context))}
    found.sort(key=lambda one: best.get(one.package.package_code, len(best)))
    told = [
        Hit(
            f"/console/catalogue/{one.package.package_code}",
            "package",
            one.package.package_code,
            one.package.package_name,
            amount=one.price,
            currency=one.package.currency,
        )
        for one in found[: MOST + 1]
    ]
    return Part(told, len(found), "/console/catalogue")


def _plain(status: str) -> State:
    return State(words.text(status), words.tone(status), status)


def _regions(context: RequestContext, asked: Query) -> Part:
    """Countries and regions that packages are for, each leading to its packages."""
    if len(asked.text) < query.SHORTEST:
        return Part(())
    text = asked.text.casefold()
    known = Counter((one.location_name, one.location_code) for one in context.parts.catalogue().packages)
    found = [
        ((name, code), count)
        for (name, code), count in sorted(known.items())
        if text in name.casefold() or text == code.casefold()
    ]
    return Part(
        [
            Hit(
                params.address("/console/packages", {"region": code}),
                "region",
                f"{code} · {many(count, 'package')}",
                name,
            )
            for (name, code), count in found
        ],
        len(found) if len(found) > MOST else None,
        "/console/regions",
    )


async def _lists_of(connection: Connection, asked: Query) -> list[Hit]:
    """Lists of the dealers that match, where these are few."""
    found = await named.dealers(connection, asked.text)
    return [
        Hit(params.address(path, {"dealer": str(dealer.tenant_id)}), "dealer", title=f"{what} of {dealer.name}")
        for dealer in (found if len(found) <= MOST_LISTS else ())
        for what, path in (("Orders", "/console/orders"), ("eSIMs", "/console/profiles"))
    ]


async def _suppliers(connection: Connection, asked: Query) -> list[Hit]:
    return [
        Hit(f"/console/suppliers/{code}", "supplier code", title=code, about=kind, state=_plain(status))
        for code, kind, status in await named.suppliers(connection, asked.text, MOST)
    ]


async def _deliveries(connection: Connection, context: RequestContext, asked: Query) -> list[Hit]:
    tenant_id = context.user.tenant_id
    if not (asked.text.isascii() and asked.text.isdigit() and len(asked.text) <= 18):
        return []
    if tenant_id is not None and not permissions(context.user).secrets:
        return []
    return [
        Hit(
            f"/console/webhooks/{asked.text}" if tenant_id else f"/console/deliveries/{hit.tenant_id}/{asked.text}",
            "delivery id",
            asked.text,
            dealer=_whose(tenant_id, hit.dealer),
            about=f"{hit.event_type} of {identity.order_no(hit.order_id)}",
            state=_plain(hit.state),
            at=hit.created_at,
        )
        for hit in await named.deliveries(connection, tenant_id, int(asked.text))
    ]


async def _refused_calls(connection: Connection, context: RequestContext, asked: Query) -> list[Hit]:
    """For those who may see what was sent."""
    tenant_id, may = context.user.tenant_id, permissions(context.user)
    if not (may.codes if tenant_id is None else may.secrets):
        return []
    return [
        Hit(
            f"/console/api-log/{call.number}"
            if tenant_id
            else f"/console/dealers/{call.tenant_id}/api-log/{call.number}",
            "request or trace id",
            call.code,
            dealer=_whose(tenant_id, call.dealer),
            about=call.path,
            at=call.at,
        )
        for call in await named.refused_calls(connection, tenant_id, asked.text)
    ]
