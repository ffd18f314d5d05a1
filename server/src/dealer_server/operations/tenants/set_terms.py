"""What can an operator change of a dealer? Name, status, limits, prices and balance: its terms."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants import parsing
from dealer_server.rules.access import access
from dealer_server.rules.money import money
from dealer_server.store.tenants.tenant import Tenant


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator sets; None leaves a term as it is. Texts are as typed: amounts in major units, markup in
    percent. `prices` by packageCode: an amount, `off` (not on sale for this dealer) or `list` (no price of its own)."""

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


async def set_tenant(database: Database, tenant_id: int, terms: Terms, author: str, clock: Clock) -> None:
    """Raises OperatorError."""

    async def work(connection: Connection) -> None:
        tenant = await locked_tenant(connection, tenant_id)
        before = await describe(connection, tenant_id, terms.prices)
        detail = await apply(connection, tenant_id, tenant.currency, terms, clock)
        after = await describe(connection, tenant_id, terms.prices)
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
    connection: Connection, tenant_id: int, currency: str, terms: Terms, clock: Clock
) -> Mapping[str, object]:
    """Writes the terms and lets processes read the dealer again. Gives the ledger entry of a changed balance, for the
    audit log. Raises OperatorError."""
    if terms.status not in (None, "ACTIVE", "DISABLED"):
        raise OperatorError(f"status is {terms.status!r}; accepted: ACTIVE, DISABLED")
    markup = None if terms.markup is None else parsing.basis_points(terms.markup)
    parsing.require_range("qps", terms.qps, 0, 1_000_000)
    parsing.require_range("markup in hundredths of a percent", markup, -9_999, 1_000_000)
    networks = _networks(terms.ip_allow)
    wallet = (await store.wallet.lock(connection, [tenant_id]))[tenant_id]
    credit_limit = parsing.optional_amount(terms.credit_limit, currency, "credit limit")
    if credit_limit is not None and wallet.balance + credit_limit < 0:
        raise OperatorError(
            f"credit limit {terms.credit_limit} is out of range: the balance is {money.text(wallet.balance, currency)}"
        )
    await store.tenant.update(
        connection,
        tenant_id,
        name=terms.name,
        status=terms.status,
        qps=terms.qps,
        ip_allow=networks,
        markup_basis_points=markup,
    )
    await store.wallet.set_terms(
        connection,
        tenant_id,
        credit_limit=credit_limit,
        low_balance_threshold=parsing.optional_amount(terms.low_balance, currency, "low balance"),
        frozen=terms.frozen,
    )
    detail = await _set_balance(connection, tenant_id, currency, terms.balance, clock)
    for package_code, text in terms.prices.items():
        await _set_price(connection, tenant_id, currency, package_code, text)
    await store.tenant.touch(connection, tenant_id)
    return detail


def _networks(addresses: Sequence[str] | None) -> list[str] | None:
    try:
        return None if addresses is None else [str(network) for network in access.networks(addresses)]
    except ValueError as error:
        raise OperatorError(str(error)) from None


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
        raise OperatorError(f"balance {text} is out of range: it is below minus the credit limit") from None


async def _set_price(connection: Connection, tenant_id: int, currency: str, package_code: str, text: str) -> None:
    if text == "list":
        if not await store.tenant.remove_price(connection, tenant_id, package_code):
            raise OperatorError(f"{package_code!r} has no price of this dealer's own")
        return
    price = None if text == "off" else parsing.amount(text, currency, f"price of {package_code}")
    if not await store.tenant.set_price(connection, tenant_id, package_code, price):
        raise OperatorError(f"no package {package_code!r}")


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
        **{f"price {code}": _price_text(prices, code, tenant.currency) for code in packages},
    }


def _price_text(prices: Mapping[str, int | None], package_code: str, currency: str) -> str:
    if package_code not in prices:
        return "list"
    price = prices[package_code]
    return "off" if price is None else money.text(price, currency)
