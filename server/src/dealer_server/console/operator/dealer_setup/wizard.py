"""A new dealer, step by step: dealer, prices, first user, and all of it at the end.

What is filled in is a draft, so that going back, a reload or another day loses nothing; the list of dealers shows it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dealer_server.console.auth.users import send_link
from dealer_server.console.operator import dealers
from dealer_server.console.operator.dealers import DEALER, DEALERS
from dealer_server.console.shared import params
from dealer_server.console.shared.forms.confirmation import CONFIRMED, confirmed
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS
from dealer_server.console.shared.request_context import Answer, Html, NotFound, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants import onboard
from dealer_server.operations.tenants.brand import BrandChange
from dealer_server.operations.tenants.onboard import NewDealer
from dealer_server.operations.users import accounts
from dealer_server.operations.users.accounts import DEALER_ROLES, IssuedLink
from dealer_server.rules.money import money
from dealer_server.rules.notices import low_balance
from dealer_server.store.catalogue import price_list
from dealer_server.store.catalogue.price_list import Listed
from dealer_server.store.tenants import credential
from dealer_server.store.tenants.dealer_draft import Draft

NEW, STEP, CREATED = f"{DEALERS}/new", f"{DEALERS}/new/{{draft_id}}/{{step}}", f"{DEALER}/created"
TEMPLATE = "operator/dealer_setup/step.html"
CURRENCIES = sorted(money.EXPONENTS)
MOST_PRICES = 200
DEFAULTS = {"currency": "USD", "qps": "10", "role": "admin", "manages_keys": "on"}
OPTIONAL = ("qps", "ip_allow", "edits_ip_allow", "manages_keys", "brand_name", "support_email", "support_url")
"""Fields of the first step that are folded away while nothing of them is changed."""


class Step(NamedTuple):
    """`fields`: what its form holds; of a checkbox that is not ticked a form holds nothing."""

    name: str
    title: str
    fields: Sequence[str]


STEPS = (
    Step(
        "dealer",
        "Dealer",
        ("name", "currency", "balance", "credit_limit", "low_balance", *OPTIONAL),
    ),
    Step("prices", "Prices", ("price_list", "markup", "prices")),
    Step("user", "First user", ("address", "role")),
    Step("review", "Review", ()),
)  # fmt: skip
NAMES = [step.name for step in STEPS]


@page(NEW, OPERATOR_ADMINS, TEMPLATE)
async def begin(context: RequestContext) -> Html:
    """Nothing is kept before the first step is filled in."""
    return _shown(NEW, STEPS[0], DEFAULTS, [])


@action(NEW, OPERATOR_ADMINS)
async def first(context: RequestContext) -> Redirect:
    """Raises OperatorError."""
    fields = DEFAULTS | _filled_in(STEPS[0], context.form)
    await _rehearse(context, fields, 0)
    draft_id = await onboard.keep_draft(context.parts.database, None, fields, context.author, context.now)
    return Redirect(_address(draft_id, 1))


@page(STEP, OPERATOR_ADMINS, TEMPLATE)
async def show(context: RequestContext) -> Html:
    draft, at = await _draft(context)
    async with context.parts.database.connection() as connection:
        lists = await price_list.listed(connection)
    return _shown(_address(draft.draft_id, at), STEPS[at], draft.fields, lists, draft)


@action(STEP, OPERATOR_ADMINS)
async def save(context: RequestContext) -> Answer:
    """Keeps what was filled in, right or wrong; goes on where it is right. The last step creates the dealer. Raises
    OperatorError."""
    draft, at = await _draft(context)
    fields = {**draft.fields, **_filled_in(STEPS[at], context.form)}
    if STEPS[at].name == "prices" or CONFIRMED in context.form:
        fields[CONFIRMED] = context.form.get(CONFIRMED, "")
    await onboard.keep_draft(context.parts.database, draft.draft_id, fields, context.author, context.now)
    if context.form.get("go") == "back":
        return Redirect(_address(draft.draft_id, max(at - 1, 0)))
    here = _address(draft.draft_id, at)

    async def write(_: bool) -> Answer:
        """The draft knows whether prices below the cost are confirmed."""
        if STEPS[at].name == "review":
            return await _create(context, draft._replace(fields=fields))
        await _rehearse(context, fields, at)
        return Redirect(_address(draft.draft_id, at + 1))

    return await confirmed(context, here, here, write)


@action(f"{NEW}/{{draft_id}}/discard", OPERATOR_ADMINS)
async def discard(context: RequestContext) -> Redirect:
    await onboard.discard_draft(context.parts.database, params.path_number(context, "draft_id"))
    return Redirect(DEALERS, "The unfinished dealer is discarded")


@page(CREATED, OPERATOR_ADMINS, "operator/dealer_setup/created.html")
async def created(context: RequestContext) -> Html:
    """The link of the first user, once, and what comes next."""
    dealer, parts = await dealers.load(context), context.parts
    issued = await accounts.take_issued(parts.database, parts.data_keys, context.session, context.now)
    async with parts.database.connection() as connection:
        keys = await credential.of_tenant(connection, dealer.tenant_id)
    return Html(dealer=dealer, link=issued if isinstance(issued, IssuedLink) else None, app_key=keys[0].app_key)


async def _create(context: RequestContext, draft: Draft) -> Redirect:
    parts = context.parts
    made = await onboard.onboard(
        parts.database,
        parts.master_keys,
        parts.settings.environment,
        _new_dealer(draft.fields, len(STEPS)),
        context.author,
        lambda: context.now,
        draft.draft_id,
    )
    to = CREATED.format(tenant_id=made.created.tenant_id)
    return await send_link(context, made.invited, to) if made.invited else Redirect(to)


async def _rehearse(context: RequestContext, fields: Mapping[str, str], at: int) -> None:
    """Raises OperatorError where the steps so far could not become a dealer."""
    parts = context.parts
    await onboard.rehearse(
        parts.database,
        parts.master_keys,
        parts.settings.environment,
        _new_dealer(fields, at),
        context.author,
        lambda: context.now,
    )


def _new_dealer(fields: Mapping[str, str], at: int) -> NewDealer:
    """What the steps up to `at` say. Raises OperatorError."""
    terms = dealers.terms_of({**fields, "markup": ""})
    brand = BrandChange(
        name=params.text(fields, "brand_name"),
        support_email=params.text(fields, "support_email"),
        support_url=params.text(fields, "support_url"),
    )
    priced = at >= NAMES.index("prices")
    invites = at >= NAMES.index("user")
    return NewDealer(
        currency=fields.get("currency", ""),
        terms=msgspec.structs.replace(
            terms,
            balance=params.text(fields, "balance"),
            markup=params.text(fields, "markup") if priced else None,
            prices=_prices(fields.get("prices", "")) if priced else {},
        ),
        price_list_id=params.number(fields, "price_list") if priced else None,
        brand=brand,
        invite=fields.get("address", "").strip() if invites else "",
        role=fields.get("role", "admin"),
        allow_below_cost=fields.get(CONFIRMED) == "on",
    )


def _prices(text: str) -> dict[str, str]:
    """A package code and a price, or `off`, on each line. Raises OperatorError."""
    prices: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.replace("=", " ").replace("\t", " ").split()
        if not words:
            continue
        if len(words) != 2:
            raise OperatorError(
                f"custom prices, line {number}: a package code and a price are expected, such as TEST-OK 1.80",
                "prices",
            )
        if words[0] in prices:
            raise OperatorError(f"custom prices, line {number}: {words[0]!r} stands there twice", "prices")
        prices[words[0]] = words[1]
    if len(prices) > MOST_PRICES:
        raise OperatorError(
            f"custom prices: at most {MOST_PRICES} can be set here; the others on the dealer's page", "prices"
        )
    if "list" in prices.values():
        raise OperatorError("custom prices: leave a package out for the price of the list", "prices")
    return prices


def _filled_in(step: Step, form: Mapping[str, str]) -> dict[str, str]:
    return {name: form.get(name, "").strip() for name in step.fields}


async def _draft(context: RequestContext) -> tuple[Draft, int]:
    """The draft and the step of the path. Raises NotFound."""
    draft = await onboard.find_draft(context.parts.database, params.path_number(context, "draft_id"))
    if draft is None or context.path["step"] not in NAMES:
        raise NotFound
    return draft, NAMES.index(context.path["step"])


def _address(draft_id: int, at: int) -> str:
    return STEP.format(draft_id=draft_id, step=STEPS[at].name)


def _shown(
    address: str, step: Step, fields: Mapping[str, str], lists: Sequence[Listed], draft: Draft | None = None
) -> Html:
    return Html(
        action=address,
        step=step,
        steps=STEPS,
        at=NAMES.index(step.name),
        values={**dict.fromkeys((name for one in STEPS for name in one.fields), ""), **fields},
        draft_id=draft.draft_id if draft else None,
        more=any(fields.get(name, "") != DEFAULTS.get(name, "") for name in OPTIONAL),
        currencies=CURRENCIES,
        lists=[(str(one.price_list_id), one.name) for one in lists],
        low_percents=low_balance.PERCENTS,
        roles=DEALER_ROLES,
        below_cost=fields.get(CONFIRMED) == "on",
        price_count=len([line for line in fields.get("prices", "").splitlines() if line.strip()]),
    )
