"""What can an operator change of a dealer? Name, status, limits, prices and balance: its terms."""

from collections.abc import Collection, Mapping, Sequence
from typing import get_args

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations import versions
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.catalogue import below_cost
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import price_changes
from dealer_server.operations.tenants import parsing
from dealer_server.rules.access import access
from dealer_server.rules.money import money, percent
from dealer_server.store.tenants.tenant import RtFace, Tenant

_FORM_NAMES = {
    "creditLimit": "credit_limit",
    "lowBalanceThreshold": "low_balance",
    "ipAllow": "ip_allow",
    "markupBasisPoints": "markup",
    "editsIpAllow": "edits_ip_allow",
    "managesKeys": "manages_keys",
    "rtFace": "rt_face",
}
"""Of what `describe` calls otherwise."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator sets; None leaves a term as it is. Texts are as typed: amounts in major units, markup in
    percent. `prices` by packageCode: an amount, `off` (not on sale for this dealer) or `list` (no price of its own).
    `edits_ip_allow`, `manages_keys`: whether the dealer may edit its own allowlist, and its own AppKeys. `rt_face`:
    off, signed or access-code."""

    name: str | None = None
    balance: str | None = None
    credit_limit: str | None = None
    low_balance: str | None = None
    qps: int | None = None
    ip_allow: Sequence[str] | None = None
    markup: str | None = None
    prices: Mapping[str, str] = {}
    status: str | None = None
    frozen: bool | None = None
    edits_ip_allow: bool | None = None
    manages_keys: bool | None = None
    rt_face: str | None = None


async def set_tenant(
    database: Database,
    tenant_id: int,
    terms: Terms,
    author: str,
    clock: Clock,
    *,
    version: str | None = None,
    allow_below_cost: bool = False,
) -> None:
    """`version`: of the terms that the author saw, None: of any. Raises OperatorError, ChangedMeanwhile, BelowCost."""

    async def work(connection: Connection) -> None:
        tenant = await locked_tenant(connection, tenant_id)
        before = await describe(connection, tenant_id, terms.prices)
        versions.require(version, texts(before), _texts_of(terms, tenant.currency))
        prices = await store.tenant.load_prices(connection, tenant_id)
        detail = await apply(connection, tenant_id, tenant.currency, terms, clock, allow_below_cost)
        after = await describe(connection, tenant_id, terms.prices)
        if terms.prices or terms.markup is not None:
            now_prices = await store.tenant.load_prices(connection, tenant_id)
            await price_changes.tell_dealer(connection, tenant_id, prices, now_prices, clock())
        await record_change(connection, author, "tenant.set", tenant_id, detail, before, after)

    await database.run(work)


async def locked_tenant(connection: Connection, tenant_id: int) -> Tenant:
    """A dealer whose wallet stays locked until the transaction ends. Raises OperatorError."""
    await store.wallet.lock(connection, [tenant_id])
    tenants = await store.tenant.listed(connection, tenant_id)
    if not tenants:
        raise OperatorError(f"no tenant {tenant_id}")
    return tenants[0]


async def apply(
    connection: Connection, tenant_id: int, currency: str, terms: Terms, clock: Clock, allow_below_cost: bool
) -> Mapping[str, object]:
    """Writes the terms and lets processes read the dealer again. Gives the ledger entry of a changed balance, for the
    audit log. Raises OperatorError, BelowCost."""
    if terms.status not in (None, "ACTIVE", "DISABLED"):
        raise OperatorError(f"status is {terms.status!r}; accepted: ACTIVE, DISABLED", "status")
    markup = None if terms.markup is None else parsing.basis_points(terms.markup)
    parsing.require_range("qps", terms.qps, 0, 1_000_000, "qps")
    parsing.require_range("markup in hundredths of a percent", markup, -9_999, 1_000_000, "markup")
    await _require_no_list(connection, tenant_id, markup)
    networks, prices = _networks(terms.ip_allow), await store.tenant.load_prices(connection, tenant_id)
    wallet = (await store.wallet.lock(connection, [tenant_id]))[tenant_id]
    credit_limit = parsing.optional_amount(terms.credit_limit, currency, "credit limit", "credit_limit")
    if credit_limit is not None and wallet.balance + credit_limit < 0:
        raise OperatorError(
            f"credit limit {terms.credit_limit} is out of range: the balance is {money.text(wallet.balance, currency)}",
            "credit_limit",
        )
    await store.tenant.update(
        connection,
        tenant_id,
        name=terms.name,
        status=terms.status,
        qps=terms.qps,
        ip_allow=networks,
        markup_basis_points=markup,
        edits_ip_allow=terms.edits_ip_allow,
        manages_keys=terms.manages_keys,
        rt_face=_rt_face(terms.rt_face),
    )
    await _require_allowlist(connection, tenant_id)
    await store.wallet.set_terms(
        connection,
        tenant_id,
        credit_limit=credit_limit,
        low_balance_threshold=parsing.optional_amount(terms.low_balance, currency, "low balance", "low_balance"),
        frozen=terms.frozen,
    )
    detail = await _set_balance(connection, tenant_id, currency, terms.balance, clock)
    for package_code, text in terms.prices.items():
        await _set_price(connection, tenant_id, currency, package_code, text)
    if terms.prices or markup is not None:
        now_prices = await store.tenant.load_prices(connection, tenant_id)
        await below_cost.require_terms_confirmed(connection, prices, now_prices, allow_below_cost)
    await store.tenant.touch(connection, tenant_id)
    return detail


async def _require_no_list(connection: Connection, tenant_id: int, markup: int | None) -> None:
    """A dealer has a price list or a markup of its own. Raises OperatorError."""
    if markup and (has := await store.price_list.of_dealer(connection, tenant_id)) is not None:
        raise OperatorError(f"the dealer has the price list {has[1]!r}: take it away before setting a markup", "markup")


def _rt_face(text: str | None) -> RtFace | None:
    """Raises OperatorError."""
    for mode in get_args(RtFace):
        if text == mode:
            return mode
    if text is not None:
        raise OperatorError(f"RT face is {text!r}; accepted: {', '.join(get_args(RtFace))}", "rt_face")
    return None


async def _require_allowlist(connection: Connection, tenant_id: int) -> None:
    """Who is let in by its AppKey alone must come from known addresses. Raises OperatorError."""
    [tenant, *_] = await store.tenant.listed(connection, tenant_id)
    if tenant.rt_face == "access-code" and not tenant.ip_allow:
        raise OperatorError(
            "RT face access-code needs an address allowlist, as its calls are not signed:"
            " set addresses or another mode",
            "ip_allow",
        )


def _networks(addresses: Sequence[str] | None) -> list[str] | None:
    try:
        return None if addresses is None else [str(network) for network in access.networks(addresses)]
    except ValueError as error:
        raise OperatorError(str(error), "ip_allow") from None


async def _set_balance(
    connection: Connection, tenant_id: int, currency: str, text: str | None, clock: Clock
) -> Mapping[str, object]:
    """Brings the balance to an amount by one ADJUST entry. Raises OperatorError."""
    if text is None:
        return {}
    balance = parsing.signed_amount(text, currency, "balance")
    wallet = (await store.wallet.lock(connection, [tenant_id]))[tenant_id]
    if balance == wallet.balance:
        return {}
    try:
        difference = balance - wallet.balance
        return {"entryVersion": await store.wallet.move(connection, tenant_id, "ADJUST", difference, None, clock())}
    except store.wallet.NotCovered:
        raise OperatorError(f"balance {text} is out of range: it is below minus the credit limit", "balance") from None


async def _set_price(connection: Connection, tenant_id: int, currency: str, package_code: str, text: str) -> None:
    if text == "list":
        if not await store.tenant.remove_price(connection, tenant_id, package_code):
            raise OperatorError(f"{package_code!r} has no price of this dealer's own")
        return
    price = None if text == "off" else parsing.amount(text, currency, f"price of {package_code}", "price")
    if not await store.tenant.set_price(connection, tenant_id, package_code, price):
        raise OperatorError(f"no package {package_code!r}", "package")


async def describe(connection: Connection, tenant_id: int, packages: Collection[str] = ()) -> dict[str, object]:
    """A dealer's terms as operators write them, with its prices of these packages: for the audit log."""
    [tenant, *_] = await store.tenant.listed(connection, tenant_id)
    prices = await store.tenant.prices(connection, tenant_id, sorted(packages))
    return {
        "name": tenant.name,
        "status": tenant.status,
        "balance": money.text(tenant.balance, tenant.currency),
        "creditLimit": money.text(tenant.credit_limit, tenant.currency),
        "lowBalanceThreshold": money.text(tenant.low_balance_threshold, tenant.currency),
        "frozen": tenant.frozen,
        "qps": tenant.qps,
        "ipAllow": tenant.ip_allow,
        "markupBasisPoints": tenant.markup_basis_points,
        "editsIpAllow": tenant.edits_ip_allow,
        "managesKeys": tenant.manages_keys,
        "rtFace": tenant.rt_face,
        **{f"price {code}": _price_text(prices, code, tenant.currency) for code in packages},
    }


def price_version(price_by_package: Mapping[str, int | None], currency: str) -> str:
    """Of custom prices, for set_tenant. None: not on sale."""
    prices = {f"price {code}": _price_text(price_by_package, code, currency) for code in price_by_package}
    return versions.version_of(prices)


def texts(described: Mapping[str, object]) -> dict[str, str]:
    """Terms and prices of `describe` by the names that their forms have, for versions.require."""
    return {_FORM_NAMES.get(name, name): _text(name, value) for name, value in described.items()}


def _texts_of(terms: Terms, currency: str) -> dict[str, str]:
    """The terms that are given, as `texts` has them. Raises OperatorError."""
    given: dict[str, object] = {
        "name": terms.name,
        "status": terms.status,
        "creditLimit": _amount(terms.credit_limit, currency, "credit limit", "credit_limit"),
        "lowBalanceThreshold": _amount(terms.low_balance, currency, "low balance", "low_balance"),
        "frozen": terms.frozen,
        "qps": terms.qps,
        "ipAllow": _networks(terms.ip_allow),
        "markupBasisPoints": None if terms.markup is None else parsing.basis_points(terms.markup),
        "editsIpAllow": terms.edits_ip_allow,
        "managesKeys": terms.manages_keys,
        "rtFace": terms.rt_face,
    }
    prices = {f"price {code}": text if text in ("off", "list") else _amount(text, currency, f"price of {code}", "price")
              for code, text in terms.prices.items()}  # fmt: skip
    return texts({name: value for name, value in (given | prices).items() if value is not None})


def _amount(text: str | None, currency: str, name: str, field: str) -> str | None:
    """As `describe` writes it. Raises OperatorError."""
    amount = parsing.optional_amount(text, currency, name, field)
    return None if amount is None else money.text(amount, currency)


def _text(name: str, value: object) -> str:
    if name.startswith("price ") and value == "list":
        return ""
    if name == "markupBasisPoints" and isinstance(value, int):
        return percent.number(value)
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _price_text(prices: Mapping[str, int | None], package_code: str, currency: str) -> str:
    if package_code not in prices:
        return "list"
    price = prices[package_code]
    return "off" if price is None else money.text(price, currency)
