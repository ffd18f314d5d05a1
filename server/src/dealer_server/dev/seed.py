"""What does a new data folder of `dealer-server dev` hold? A catalogue, stock, the demo dealer and, where it is wanted,
the business of some days before."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from dealer_server import audit_context, clock, store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.dev import (
    buyers,
    calls,
    catalogue,
    history,
    lives,
    notices,
    payments,
    price_lists,
    purchases,
    receivers,
    wholesalers,
)
from dealer_server.dev.history import Dealer
from dealer_server.operations.catalogue import load_stock
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.operations.overview.count_hours import CLOSED_AFTER
from dealer_server.operations.tenants.brand import BrandChange, set_brand_within
from dealer_server.operations.tenants.create import create_within
from dealer_server.operations.tenants.credentials import KeyLimits, set_limits_within
from dealer_server.operations.tenants.set_terms import Terms
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.esim import iccid
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.snapshot import Links
from dealer_server.settings import Settings
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import overview
from dealer_server.store.past import buyer_mails as past_mails
from dealer_server.store.past import calls as past_calls
from dealer_server.store.past import notices as past_notices
from dealer_server.store.past import orders as past_orders
from dealer_server.store.past import purchases as past_purchases
from dealer_server.store.past import webhooks as past_webhooks
from dealer_server.store.past.calls import PastCaller
from dealer_server.store.past.orders import Entry, PastOrder
from dealer_server.store.past.webhooks import PastDealer
from dealer_server.store.wallets.topup import Topup

DEMO_STOCK = "DEMO-STOCK"
DEMO_CODES = 1_000
DEMO_BRAND = BrandChange(name="Demo Travel", colour="#0f6e66", support_email="help@demo-travel.example",
                         support_phone="+44 20 7946 0123")  # fmt: skip
DEMO_TERMS = Terms(qps=100, manages_keys=True, edits_ip_allow=True)


class _Made(NamedTuple):
    """A dealer that was created. `entries`: of the wallet, since the first order. `topups`: what was asked for."""

    dealer: Dealer
    tenant_id: int
    app_key: str
    orders: Sequence[PastOrder]
    entries: Sequence[Entry] = ()
    topups: Sequence[Topup] = ()


async def seed(database: Database, opened: Settings, days: int, receiving: str) -> str:
    """Creates catalogue, stock and, last, the dealers: once they exist, everything does. The demo dealer's AppKey.
    `days`: of business before; `receiving`: the address at which made-up dealers receive webhooks."""
    packages = {package.package_code: package for package in catalogue.catalogue("test")}
    now = clock.now()
    since = now - timedelta(days=days, hours=1) if days else None
    with audit_context.acting_at(since):
        await put_packages(database, tuple(packages.values()), "dev", clock.now)
        async with database.connection() as connection:
            keys = await store.data_key.load(connection, opened.master_keys)
            free = await store.stock.count_free(connection, DEMO_STOCK)
        if since is not None:
            await price_lists.put(database, packages, since)
            await wholesalers.put(database, keys, receiving, opened.base_url)
            await wholesalers.put_routes(database, sold_packages())
        if not free:
            await load_stock.load_stock(database, keys, DEMO_STOCK, _stock_file(), "dev")

        async def create(connection: Connection) -> str:
            if since is None:
                return (await _create(connection, opened, history.DEMO, [])).app_key
            made = [
                await _with_past(connection, opened, keys, dealer, packages, (since, now)) for dealer in history.ALL
            ]
            partner = next(one.tenant_id for one in made if one.dealer is price_lists.DEALER)
            await price_lists.assign(connection, partner, since)
            await past_purchases.write(
                connection, [row for one in made for row in purchases.purchases(one.tenant_id, one.orders, packages)]
            )
            links = Links(opened.base_url, opened.ios_install_url, opened.android_install_url)
            dealers = [PastDealer(one.tenant_id, one.orders, receivers.of(one.dealer, receiving, now)) for one in made]
            await past_webhooks.write(connection, keys, links, dealers)
            await _write_calls(connection, made, now)
            await _record_reviews(connection, made)
            told = [notices.told(one.tenant_id, one.orders, one.entries, one.topups, now) for one in made]
            await past_notices.write(connection, [row for rows in told for row in rows])
            await past_mails.write(connection, made[0].tenant_id, list(buyers.mails(made[0].orders)))
            return made[0].app_key

        app_key = await database.run(create)
    if since is not None:
        await _count_hours(database, since, now)
    return app_key


async def _count_hours(database: Database, since: datetime, now: datetime) -> None:
    """All that are over, at once: a worker would take minutes."""
    first = since.replace(minute=0, second=0, microsecond=0)
    async with database.transaction() as connection:
        hours = await overview.hours(connection, first, (now - CLOSED_AFTER - first) // overview.HOUR)
        await overview.put(connection, hours)


async def _with_past(
    connection: Connection,
    opened: Settings,
    keys: DataKeys,
    dealer: Dealer,
    packages: Mapping[str, Package],
    span: tuple[datetime, datetime],
) -> _Made:
    """A dealer with the business of this span."""
    since, now = span
    sold = history.sold(dealer, packages, (now - since).days, now)
    orders = [lives.lived(order, number, now) for number, order in enumerate(sold, 1)]
    topups = payments.payments(dealer, orders, since, now)
    made = await _create(connection, opened, dealer, orders)
    if dealer is history.DEMO:
        await set_brand_within(connection, made.tenant_id, DEMO_BRAND, "dev")
    entries = await past_orders.write(connection, keys, made.tenant_id, orders, topups, since)
    return made._replace(entries=entries, topups=topups)


async def _create(connection: Connection, opened: Settings, dealer: Dealer, orders: Sequence[PastOrder]) -> _Made:
    """Who has orders pays for them by top-ups."""
    terms = msgspec.structs.replace(
        DEMO_TERMS if dealer is history.DEMO else Terms(),
        name=dealer.name,
        balance=None if orders else money.text(dealer.balance * money.SCALE, "USD"),
    )
    created = await create_within(connection, opened.master_keys, opened.environment, "USD", terms, "dev", clock.now)
    if dealer is history.DEMO:
        await set_limits_within(connection, created.app_key, KeyLimits(name="Web shop"), "dev")
    return _Made(dealer, int(created.tenant_id), created.app_key, orders)


async def _write_calls(connection: Connection, made: Sequence[_Made], now: datetime) -> None:
    of_each = [calls.made(one.orders, now) for one in made]
    callers = [
        PastCaller(
            one.app_key,
            calls.served(one.dealer, one.tenant_id, one.app_key, own),
            calls.refused(one.dealer, one.tenant_id, one.app_key, own),
        )
        for one, own in zip(made, of_each, strict=True)
    ]
    await past_calls.write(connection, callers, calls.spreads(call for own in of_each for call in own))


async def _record_reviews(connection: Connection, made: Sequence[_Made]) -> None:
    """Each top-up was approved or rejected by somebody, who stands in the audit log."""
    acts: list[tuple[datetime, str, int, dict[str, object]]] = []
    for one in made:
        entries = {entry.reference: entry for entry in one.entries if entry.entry_type == "TOPUP"}
        for topup in one.topups:
            if topup.reviewed_at is not None:
                action = "topup.approve" if topup.status == "APPROVED" else "topup.reject"
                acts.append((topup.reviewed_at, action, one.tenant_id, _review(topup, entries.get(topup.topup_id))))
    for at, action, tenant_id, detail in sorted(acts, key=lambda act: act[0]):
        with audit_context.acting_at(at), audit_context.acting_from(receivers.HOST):
            await record_act(connection, payments.REVIEWER, action, tenant_id, detail)


def _review(topup: Topup, entry: Entry | None) -> dict[str, object]:
    """What the audit log says of it; `entry`: the credit of one that was approved."""
    amount = money.text(topup.amount, "USD")
    before, after = {"status": "PENDING"}, {"status": topup.status}
    told: dict[str, object] = {"topupNo": identity.topup_no(topup.topup_id), "amount": amount}
    if entry is None:
        told["reason"] = topup.reject_reason
    else:
        told["entryVersion"] = entry.version
        before["balance"] = money.text(entry.balance_after - entry.amount, "USD")
        after["balance"] = money.text(entry.balance_after, "USD")
    return told | {"before": before, "after": after}


def sold_packages() -> Mapping[str, Package]:
    """The packages that made-up dealers buy or have a price of their own for: made-up suppliers make them."""
    packages = {package.package_code: package for package in catalogue.catalogue("test")}
    return {code: packages[code] for code in (*history.POPULAR, *price_lists.CHEAPER) if code in packages}


async def move_suppliers(database: Database, opened: Settings, address: str) -> None:
    """Made-up suppliers, where this data folder has them, are called at `address`."""
    async with database.connection() as connection:
        known = await store.supplier.codes(connection)
        keys = await store.data_key.load(connection, opened.master_keys)
    if wholesalers.FIRST.code in known:
        await wholesalers.put(database, keys, address, opened.base_url)


async def put_new_scripts(database: Database) -> None:
    """A data folder of an older version lacks scripted packages of this one, or has them without recharges."""
    async with database.connection() as connection:
        _, stored = await store.package.load(connection)
    known = {package.package_code: package for package, _ in stored}
    wanted = []
    for package in catalogue.scripted():
        kept = known.get(package.package_code, package)
        wanted.append(msgspec.structs.replace(kept, top_up_support=package.top_up_support))
    if changed := [package for package in wanted if known.get(package.package_code) != package]:
        await put_packages(database, changed, "dev", clock.now)


def _stock_file() -> str:
    """Made-up activation codes, as an operator would load real ones."""
    lines = ["iccid,activationCode"]
    for number in range(DEMO_CODES):
        body = f"8900099{number:011d}"
        code = f"LPA:1$rsp.sandbox.example${secrets.token_hex(16).upper()}"
        lines.append(f"{body}{iccid.luhn_digit(body)},{code}")
    return "\n".join(lines)
