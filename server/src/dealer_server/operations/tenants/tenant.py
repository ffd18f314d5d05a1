"""What can an operator do with a dealer? Create it, change its terms, reset or disable its credentials."""

import secrets
import string
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys, credential_context
from dealer_server.rules.access import access
from dealer_server.rules.money import money

BASE62 = string.ascii_letters + string.digits
OVERLAP = timedelta(hours=24)


LONGEST_REASON = 500  # characters


class OperatorError(Exception):
    """What an operator asked for cannot be done; the message is one line and nothing was changed."""


def require_reason(reason: str, needed: str = "") -> None:
    """The audit log keeps it for ever, so it is short; `needed` says for what there has to be one. Raises
    OperatorError."""
    if needed and not reason.strip():
        raise OperatorError(needed)
    if len(reason) > LONGEST_REASON:
        raise OperatorError(f"a reason has at most {LONGEST_REASON} characters; this one has {len(reason):,}")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator sets; None leaves it as it is. Texts are as typed: money in major units, markup in percent."""

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


class Created(msgspec.Struct, frozen=True, rename="camel"):
    """A new dealer. The secret is shown this once."""

    tenant_id: str
    name: str
    environment: str
    currency: str
    app_key: str
    app_secret: str


async def create_tenant(
    database: Database,
    master_keys: MasterKeys,
    environment: str,
    currency: str,
    terms: Terms,
    author: str,
    clock: Clock,
) -> Created:
    """Raises OperatorError."""
    if currency not in money.EXPONENTS:
        raise OperatorError(f"{currency!r} is no ISO 4217 currency")
    if not (terms.name or "").strip():
        raise OperatorError("a name is required")
    label = "live" if environment == "production" else "test"
    app_key, secret = f"ak_{label}_{_base62(24)}", f"sk_{label}_{_base62(40)}"

    async def work(connection: Connection) -> int:
        tenant_id = await store.tenant.create(connection, terms.name or "", 10)
        sealed = master_keys.seal(secret.encode(), credential_context(tenant_id, app_key, 1))
        await store.tenant.add_credential(connection, tenant_id, app_key, sealed)
        await store.wallet.create(connection, tenant_id, currency, 0)
        detail = await _apply(connection, tenant_id, currency, terms, clock)
        after = await _shown(connection, tenant_id, terms.prices)
        await _record(connection, author, "tenant.create", tenant_id, detail, {}, after)
        return tenant_id

    tenant_id = await database.run(work)
    return Created(str(tenant_id), terms.name or "", environment, currency, app_key, secret)


async def set_tenant(database: Database, tenant_id: int, terms: Terms, author: str, clock: Clock) -> None:
    """Raises OperatorError."""

    async def work(connection: Connection) -> None:
        found = await _found(connection, tenant_id)
        before = await _shown(connection, tenant_id, terms.prices)
        detail = await _apply(connection, tenant_id, found.currency, terms, clock)
        after = await _shown(connection, tenant_id, terms.prices)
        await _record(connection, author, "tenant.set", tenant_id, detail, before, after)

    await database.run(work)


async def list_tenants(database: Database) -> list[store.tenant.Tenant]:
    async with database.connection() as connection:
        return await store.tenant.listed(connection)


async def adjust(
    database: Database, tenant_id: int, amount: str, reason: str, author: str, clock: Clock
) -> store.tenant.Tenant:
    """Moves a dealer's money by hand: one ADJUST entry of a signed amount, down to minus the credit limit. Gives the
    dealer as it then stands. Raises OperatorError."""
    require_reason(reason, "an adjustment needs a reason, for the audit log")

    async def work(connection: Connection) -> store.tenant.Tenant:
        found = await _found(connection, tenant_id)
        moved = _signed(amount, found.currency, "amount")
        if moved == 0:
            raise OperatorError("amount is 0; accepted: what is to be added, or taken away where it begins with -")
        before = await _shown(connection, tenant_id)
        try:
            version = await store.wallet.move(connection, tenant_id, "ADJUST", moved, None, clock())
        except store.wallet.NotCovered:
            raise OperatorError(
                f"balance {before['balance']} and credit limit {before['creditLimit']} do not cover {amount}"
            ) from None
        detail = {"reason": reason, "amount": money.text(moved, found.currency), "entryVersion": version}
        after = await _shown(connection, tenant_id)
        await _record(connection, author, "tenant.adjust", tenant_id, detail, before, after)
        return found._replace(balance=found.balance + moved)

    return await database.run(work)


async def _found(connection: Connection, tenant_id: int) -> store.tenant.Tenant:
    """A dealer whose wallet stays locked until the transaction ends. Raises OperatorError."""
    await store.wallet.lock(connection, [tenant_id])
    found = await store.tenant.listed(connection, tenant_id)
    if not found:
        raise OperatorError(f"no tenant {tenant_id}")
    return found[0]


async def view_secret(database: Database, master_keys: MasterKeys, app_key: str, author: str) -> str:
    """The secret in force; who looked is in the audit log. Raises OperatorError."""

    async def work(connection: Connection) -> str:
        found = await store.tenant.sealed_secret(connection, app_key)
        if found is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, version, sealed = found
        await _record(connection, author, "credentials.view", tenant_id, {"appKey": app_key})
        return master_keys.open(sealed, credential_context(tenant_id, app_key, version)).decode()

    return await database.run(work)


async def reset_secret(
    database: Database,
    master_keys: MasterKeys,
    app_key: str,
    author: str,
    clock: Clock,
    overlap: timedelta = OVERLAP,
) -> str:
    """The new secret; the old one opens calls for 24 h more (decisions 1), or not at all. Raises OperatorError."""

    async def work(connection: Connection) -> str:
        found = await store.tenant.lock_credential(connection, app_key)
        if found is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, version = found
        secret = f"{app_key[:8].replace('ak', 'sk', 1)}{_base62(40)}"
        sealed = master_keys.seal(secret.encode(), credential_context(tenant_id, app_key, version + 1))
        assert await store.tenant.reset_secret(connection, app_key, tenant_id, version + 1, sealed, clock() + overlap)
        await store.tenant.touch(connection, tenant_id)
        was, now = {"secretVersion": version}, {"secretVersion": version + 1, "previousUntil": str(clock() + overlap)}
        await _record(connection, author, "credentials.reset", tenant_id, {"appKey": app_key}, was, now)
        return secret

    return await database.run(work)


async def disable_credential(database: Database, app_key: str, author: str) -> None:
    """Every call of it is refused from now on. Raises OperatorError."""
    await _set_credential(database, app_key, "DISABLED", "credentials.disable", author)


async def enable_credential(database: Database, app_key: str, author: str) -> None:
    """Its calls are taken again, with the secret it had. Raises OperatorError."""
    await _set_credential(database, app_key, "ACTIVE", "credentials.enable", author)


async def _set_credential(database: Database, app_key: str, status: str, action: str, author: str) -> None:
    """Raises OperatorError."""

    async def work(connection: Connection) -> None:
        found = await store.tenant.set_credential_status(connection, app_key, status)
        if found is None:
            raise OperatorError(f"no credential {app_key!r}")
        tenant_id, before = found
        await store.tenant.touch(connection, tenant_id)
        await _record(
            *(connection, author, action, tenant_id, {"appKey": app_key}),
            *({"status": before}, {"status": status}),
        )

    await database.run(work)


async def _apply(
    connection: Connection, tenant_id: int, currency: str, terms: Terms, clock: Clock
) -> dict[str, object]:
    """Writes the terms and says that processes have to look again. Gives what moved money, for the audit log."""
    if terms.status not in (None, "ACTIVE", "DISABLED"):
        raise OperatorError(f"status is {terms.status!r}; accepted: ACTIVE, DISABLED")
    try:
        allowed = None if terms.ip_allow is None else [str(one) for one in access.networks(terms.ip_allow)]
    except ValueError as error:
        raise OperatorError(str(error)) from None
    markup = None if terms.markup is None else _basis_points(terms.markup)
    credit_limit = _optional_money(terms.credit_limit, currency, "credit limit")
    wallet = (await store.wallet.lock(connection, [tenant_id]))[tenant_id]
    _require_range("qps", terms.qps, 0, 1_000_000)
    _require_range("markup in hundredths of a percent", markup, -9_999, 1_000_000)
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
        ip_allow=allowed,
        markup_basis_points=markup,
    )
    await store.wallet.set_terms(
        connection,
        tenant_id,
        credit_limit=credit_limit,
        low_balance_threshold=_optional_money(terms.low_balance, currency, "low balance"),
        frozen=terms.frozen,
    )
    try:
        moved = await _set_balance(connection, tenant_id, currency, terms.balance, clock)
    except store.wallet.NotCovered:
        raise OperatorError(f"balance {terms.balance} is out of range: it is below minus the credit limit") from None
    for package_code, text in terms.prices.items():
        await _set_price(connection, tenant_id, currency, package_code, text)
    await store.tenant.touch(connection, tenant_id)
    return moved


async def _set_balance(
    connection: Connection, tenant_id: int, currency: str, text: str | None, clock: Clock
) -> dict[str, object]:
    """Brings the balance to what was asked for by one ADJUST entry."""
    if text is None:
        return {}
    wanted = _signed(text, currency, "balance")
    wallet = (await store.wallet.lock(connection, [tenant_id]))[tenant_id]
    if wanted == wallet.balance:
        return {}
    return {
        "entryVersion": await store.wallet.move(connection, tenant_id, "ADJUST", wanted - wallet.balance, None, clock())
    }


async def _set_price(connection: Connection, tenant_id: int, currency: str, package_code: str, text: str) -> None:
    """`off`: not on sale for this dealer; `list`: no price of its own any more."""
    if text == "list":
        if not await store.tenant.remove_price(connection, tenant_id, package_code):
            raise OperatorError(f"{package_code!r} has no price of this dealer's own")
        return
    price = None if text == "off" else _money(text, currency, f"price of {package_code}")
    if not await store.tenant.set_price(connection, tenant_id, package_code, price):
        raise OperatorError(f"no package {package_code!r}")


def _require_range(what: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise OperatorError(f"{what} {value} is out of range; accepted: {least} to {most}")


def _money(text: str, currency: str, what: str) -> int:
    try:
        return money.parse(text, currency)
    except ValueError as error:
        raise OperatorError(f"{what} {text!r}: {error}") from None


def _optional_money(text: str | None, currency: str, what: str) -> int | None:
    return None if text is None else _money(text, currency, what)


def _signed(text: str, currency: str, what: str) -> int:
    return -_money(text[1:], currency, what) if text.startswith("-") else _money(text, currency, what)


def _basis_points(percent: str) -> int:
    """12.5 (percent) as 1250."""
    sign, digits = (-1, percent[1:]) if percent.startswith("-") else (1, percent)
    whole, _, fraction = digits.partition(".")
    numbers = percent.isascii() and whole.isdigit() and (fraction or "0").isdigit()
    if not (numbers and len(whole) <= 9 and len(fraction) <= 2):
        raise OperatorError(f"markup {percent!r}: a percentage with at most two decimals, such as 12.5")
    return sign * (int(whole) * 100 + int((fraction + "00")[:2]))


async def _shown(connection: Connection, tenant_id: int, packages: Collection[str] = ()) -> dict[str, object]:
    """A dealer's terms as operators write them, with its own prices of these packages: for the audit log."""
    [one, *_] = await store.tenant.listed(connection, tenant_id)
    prices = await store.tenant.prices(connection, tenant_id, sorted(packages))
    return {
        "name": one.name,
        "status": one.status,
        "balance": money.text(one.balance, one.currency),
        "creditLimit": money.text(one.credit_limit, one.currency),
        "lowBalanceThreshold": money.text(one.low_balance_threshold, one.currency),
        "frozen": one.frozen,
        "qps": one.qps,
        "ipAllow": one.ip_allow,
        "markupBasisPoints": one.markup_basis_points,
        **{f"price {code}": _priced(prices, code, one.currency) for code in packages},
    }


def _priced(prices: Mapping[str, int | None], package_code: str, currency: str) -> str:
    """A price as operators write it: `list` where the dealer has none of its own."""
    if package_code not in prices:
        return "list"
    price = prices[package_code]
    return "off" if price is None else money.text(price, currency)


async def _record(
    connection: Connection,
    author: str,
    action: str,
    tenant_id: int | None,
    detail: Mapping[str, object],
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    """`before` and `after` say all that might have changed; what did is written down."""
    changed = dict(detail)
    if before is not None and after is not None:
        names = [name for name in after if before.get(name) != after[name]]
        changed |= {"before": {name: before[name] for name in names if name in before},
                    "after": {name: after[name] for name in names}}  # fmt: skip
    await store.audit_log.record_act(connection, author, action, tenant_id, changed)


def _base62(length: int) -> str:
    return "".join(secrets.choice(BASE62) for _ in range(length))
