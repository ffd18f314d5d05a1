"""`dealer-server`: dev, serve, work, migrate, audit, and the operator's commands."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, CycloptsError, Parameter

from dealer_server import logs, settings
from dealer_server.cli import AsJson, author, opened_data_keys, opened_database, run
from dealer_server.cli import money as money_commands
from dealer_server.cli import order as order_commands
from dealer_server.cli import supplier as supplier_commands
from dealer_server.cli import user as user_commands
from dealer_server.cli import webhook as webhook_commands
from dealer_server.settings import CannotStart, Settings, SettingsError

app = App(name="dealer-server", help="The service behind the eSIM Dealer Open API v1.", version_flags=[])
tenant_app = App(name="tenant", help="Dealers.")
credentials_app = App(name="credentials", help="A dealer's AppKey and AppSecret.")
catalog_app = App(name="catalog", help="What is on sale.")
keys_app = App(name="keys", help="The master keys that seal secrets.")
stock_app = App(name="stock", help="Activation codes sold from stock.")
for group in (
    tenant_app,
    credentials_app,
    catalog_app,
    stock_app,
    keys_app,
    webhook_commands.app,
    order_commands.app,
    money_commands.topup_app,
    money_commands.refund_app,
    supplier_commands.app,
    user_commands.app,
):
    app.command(group)


@app.command
def dev(
    *,
    port: int = 8080,
    data: Path | None = None,
    fresh: Annotated[bool, Parameter(negative="")] = False,
    speed: float | None = None,
    as_json: AsJson = False,
) -> None:
    """Run everything on an embedded PostgreSQL with a demo dealer.

    Args:
        port: The API's port on 127.0.0.1; 0 takes a free one.
        data: The data folder; a second start finds its data again.
        fresh: Start with an empty data folder.
        speed: The simulated network, and the plans of its eSIMs, run so many times faster.
    """
    from dealer_server.dev import run as development

    run(development.run(port, data, fresh=fresh, as_json=as_json, speed=speed))


@app.command
def serve(*, host: str | None = None, port: int | None = None, share_nothing: bool = False) -> None:
    """Serve the API.

    Args:
        share_nothing: Allow several serve processes on one database without DEALER_VALKEY_URL: each counts alone.
    """
    run(_serve(host, port, share_nothing))


@app.command
def work(*, metrics: str | None = None) -> None:
    """Run the worker: fulfillment and webhooks. Any number may run on one database.

    Args:
        metrics: HOST:PORT of /metrics and /health (default 127.0.0.1:9464, where that is free); "" for none.
    """
    run(_work(metrics))


@app.command
def migrate() -> None:
    """Bring the database's schema up to this version."""

    async def apply() -> None:
        from dealer_server.db.connection import connect
        from dealer_server.store import schema

        connection = await connect(settings.database_url())
        try:
            for migration in await schema.migrate(connection):
                print(f"applied {migration.number:04d} {migration.name}")
            print("the schema is up to date")
        finally:
            await connection.close()

    run(apply())


@app.command
def audit(*, tenant: int | None = None, log_head: str | None = None, as_json: AsJson = False) -> None:
    """Check every invariant of the ledger and of orders; the exit status counts the violated ones.

    Args:
        log_head: The head of the audit log as an earlier audit printed it: all that led to it must still be there.
    """

    async def check(opened: Settings) -> int:
        from dealer_server.operations.audit.check_invariants import check_invariants, report_json, report_text

        async with opened_database(opened) as database:
            report = await check_invariants(database, opened.master_keys, None, database.clock.now(), tenant, seen)
        print(report_json(report) if as_json else report_text(report))
        return len(report.violated)

    try:
        seen = None if log_head is None else bytes.fromhex(log_head)
    except ValueError:
        raise SettingsError(f"--log-head {log_head!r}: the hexadecimal digits that an audit printed") from None
    sys.exit(run(check(settings.read())))


@tenant_app.command(name="create")
def tenant_create(
    *,
    name: str,
    currency: str = "USD",
    balance: str | None = None,
    qps: int | None = None,
    credit_limit: str | None = None,
    low_balance: str | None = None,
    ip_allow: list[str] | None = None,
    markup: str | None = None,
    price: list[str] | None = None,
    as_json: AsJson = False,
) -> None:
    """Create a dealer; its AppSecret is shown this once.

    Args:
        balance: Opening balance, an ADJUST entry.
        qps: Calls a second; 0 is no limit.
        low_balance: Below this available balance /account/balance says lowBalance; 0 is never.
        ip_allow: Addresses or networks that may call; repeat for several.
        markup: Percent on the default dealer price, such as 12.5.
        price: PACKAGE=PRICE, or PACKAGE=off; repeat for several.
    """

    async def create(opened: Settings) -> None:
        from dealer_server.operations.tenants.create import create_tenant
        from dealer_server.operations.tenants.set_terms import Terms

        terms = Terms(
            name=name,
            balance=balance,
            credit_limit=credit_limit,
            low_balance=low_balance,
            qps=qps,
            ip_allow=ip_allow,
            markup=markup,
            prices=_prices(price),
        )
        async with opened_database(opened) as database:
            await opened_data_keys(database, opened)
            created = await create_tenant(
                database, opened.master_keys, opened.environment, currency, terms, author(), database.clock.now
            )
        if as_json:
            print(msgspec.json.encode(created).decode())
        else:
            print(f"tenant     {created.tenant_id}  {created.name}  ({created.environment}, {created.currency})")
            print(f"AppKey     {created.app_key}\nAppSecret  {created.app_secret}   shown this once")

    run(create(settings.read()))


@tenant_app.command(name="list")
def tenant_list(*, as_json: AsJson = False) -> None:
    """List the dealers."""

    async def show(opened: Settings) -> None:
        from dealer_server.operations.tenants.list import list_tenants
        from dealer_server.rules.money import money

        async with opened_database(opened) as database:
            tenants = await list_tenants(database)
        if as_json:
            for one in tenants:
                print(json.dumps(_tenant_fields(one)))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table("tenant", "name", "status", "balance", "credit limit", "low at", "QPS", "AppKey", box=None)
        for one in tenants:
            shown = (one.balance, one.credit_limit, one.low_balance_threshold)
            amounts = [f"{money.text(value, one.currency)} {one.currency}" for value in shown]
            status = "FROZEN" if one.frozen else one.status
            table.add_row(str(one.tenant_id), one.name, status, *amounts, str(one.qps), one.app_key)
        Console(width=None if sys.stdout.isatty() else 200).print(table)

    run(show(settings.read()))


@tenant_app.command(name="set")
def tenant_set(
    tenant_id: int,
    *,
    name: str | None = None,
    balance: str | None = None,
    qps: int | None = None,
    credit_limit: str | None = None,
    low_balance: str | None = None,
    ip_allow: list[str] | None = None,
    any_ip: Annotated[bool, Parameter(negative="")] = False,
    markup: str | None = None,
    price: list[str] | None = None,
    status: str | None = None,
    freeze: Annotated[bool | None, Parameter(negative="--unfreeze")] = None,
) -> None:
    """Change a dealer's terms; what is not named stays.

    Args:
        balance: Brings the balance to this amount by one ADJUST entry.
        low_balance: Below this available balance /account/balance says lowBalance; 0 is never.
        any_ip: Empties the address allowlist.
        price: PACKAGE=PRICE, PACKAGE=off, or PACKAGE=list for the price list's again; repeat for several.
        status: ACTIVE or DISABLED.
        freeze: A frozen wallet buys nothing.
    """

    async def change(opened: Settings) -> None:
        from dealer_server.operations.tenants.set_terms import Terms, set_tenant

        terms = Terms(
            name=name,
            balance=balance,
            credit_limit=credit_limit,
            low_balance=low_balance,
            qps=qps,
            ip_allow=[] if any_ip else ip_allow,
            markup=markup,
            prices=_prices(price),
            status=status,
            frozen=freeze,
        )
        async with opened_database(opened) as database:
            await set_tenant(database, tenant_id, terms, author(), database.clock.now)
        print(f"tenant {tenant_id} is changed")

    run(change(settings.read()))


@tenant_app.command(name="adjust")
def tenant_adjust(tenant_id: int, amount: str, *, reason: str, as_json: AsJson = False) -> None:
    """Add money to a dealer's wallet or, where the amount begins with -, take it away: one ADJUST entry.

    Args:
        reason: Why, for the audit log.
    """

    async def adjust(opened: Settings) -> None:
        from dealer_server.operations.wallets.adjust import adjust_balance
        from dealer_server.rules.money import money

        async with opened_database(opened) as database:
            done = await adjust_balance(database, tenant_id, amount, reason, author(), database.clock.now)
        balance = money.text(done.balance, done.currency)
        print(json.dumps(_tenant_fields(done)) if as_json else f"tenant {tenant_id} has {balance} {done.currency} now")

    run(adjust(settings.read()))


@credentials_app.command(name="view")
def credentials_view(app_key: str, *, as_json: AsJson = False) -> None:
    """Show the AppSecret of an AppKey; who looked is in the audit log."""

    async def view(opened: Settings) -> None:
        from dealer_server.operations.tenants import credentials

        async with opened_database(opened) as database:
            secret = await credentials.view_secret(database, opened.master_keys, app_key, author())
        print(json.dumps({"appKey": app_key, "appSecret": secret}) if as_json else f"AppSecret  {secret}")

    run(view(settings.read()))


@credentials_app.command(name="reset")
def credentials_reset(
    app_key: str, *, now: Annotated[bool, Parameter(negative="")] = False, as_json: AsJson = False
) -> None:
    """Give an AppKey a new AppSecret; the old one opens calls for 24 hours more.

    Args:
        now: The old one ends at once.
    """

    async def reset(opened: Settings) -> None:
        from dealer_server.operations.tenants import credentials

        async with opened_database(opened) as database:
            await opened_data_keys(database, opened)
            overlap = timedelta(0) if now else credentials.OVERLAP
            secret = await credentials.reset_secret(
                database, opened.master_keys, app_key, author(), database.clock.now, overlap
            )
        print(json.dumps({"appKey": app_key, "appSecret": secret}) if as_json else f"AppSecret  {secret}")

    run(reset(settings.read()))


@credentials_app.command(name="disable")
def credentials_disable(app_key: str) -> None:
    """Refuse every call of an AppKey from now on."""

    async def disable(opened: Settings) -> None:
        from dealer_server.operations.tenants import credentials

        async with opened_database(opened) as database:
            await credentials.disable_credential(database, app_key, author())
        print(f"{app_key} is disabled")

    run(disable(settings.read()))


@credentials_app.command(name="enable")
def credentials_enable(app_key: str) -> None:
    """Take the calls of a disabled AppKey again."""

    async def enable(opened: Settings) -> None:
        from dealer_server.operations.tenants import credentials

        async with opened_database(opened) as database:
            await credentials.enable_credential(database, app_key, author())
        print(f"{app_key} is enabled")

    run(enable(settings.read()))


@keys_app.command(name="rotate")
def keys_rotate(*, as_json: AsJson = False) -> None:
    """Seal every secret anew under the newest of DEALER_SEALING_KEYS; safe while serving, and to repeat."""

    async def rotate(opened: Settings) -> None:
        from rich.console import Console
        from rich.progress import Progress

        from dealer_server.operations.keys.rotate import rotate_master_key

        async with opened_database(opened) as database:
            with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
                bar = progress.add_task("credentials", total=None)
                done = await rotate_master_key(
                    database, opened.master_keys, author(), lambda count: progress.advance(bar, count)
                )
        if as_json:
            print(json.dumps({"credentials": done.credentials, "dataKeys": done.data_keys}))
        else:
            print(f"{done.credentials} credentials and {done.data_keys} data keys are sealed anew")

    run(rotate(settings.read()))


@catalog_app.command(name="import")
def catalog_import(file: Path, *, as_json: AsJson = False) -> None:
    """Import packages from a CSV file: all of them or, with a report of every fault, none."""

    async def load(opened: Settings) -> int:
        from dealer_server.operations.catalogue import import_packages

        async with opened_database(opened) as database:
            done = await import_packages.import_csv(database, _text(file), author(), database.clock.now)
        if as_json:
            print(msgspec.json.encode(done).decode())
        else:
            _print_faults(file, done.faults)
            nothing = f"{len(done.faults)} faults; nothing was imported"
            print(nothing if done.faults else f"{done.packages} packages, {done.changed} of them new or changed")
        return 1 if done.faults else 0

    sys.exit(run(load(settings.read())))


@stock_app.command(name="load")
def stock_load(package: str, file: Path, *, as_json: AsJson = False) -> None:
    """Load activation codes of a stock package from a CSV file: all of them or, with a report, none."""

    async def load(opened: Settings) -> int:
        from dealer_server.operations.catalogue import load_stock

        async with opened_database(opened) as database:
            keys = await opened_data_keys(database, opened)
            done = await load_stock.load_stock(database, keys, package, _text(file), author())
        if as_json:
            print(msgspec.json.encode(done).decode())
        else:
            _print_faults(file, done.faults)
            for warning in done.warnings:
                print(f"{file}:{warning.line}: {warning.column}: warning: {warning.message}", file=sys.stderr)
            nothing = f"{len(done.faults)} faults; nothing was loaded"
            print(nothing if done.faults else f"{done.loaded} profiles loaded; {done.free} free now")
        return 1 if done.faults else 0

    sys.exit(run(load(settings.read())))


async def _serve(host: str | None, port: int | None, share_nothing: bool) -> None:
    from dealer_server.api import listener
    from dealer_server.wiring import process, start_checks
    from dealer_server.wiring.base import database_up

    opened = settings.read(host=host, port=port)
    logs.configure(opened.environment == "production")
    start_checks.require_protection(opened)
    try:
        listening = listener.bind(opened.host, opened.port)
    except socket.gaierror as error:
        raise SettingsError(f"cannot listen on {opened.host}: {error.strerror}") from None
    stop = _stopped()
    if not await database_up(opened, stop):
        return
    async with start_checks.serve_lock(opened, share_nothing):
        await process.run(opened, listening=listening, worker=False, ready=_announce, stop=stop)


async def _work(metrics: str | None) -> None:
    from dealer_server.wiring import process
    from dealer_server.wiring.base import database_up

    opened = settings.read(metrics=metrics)
    logs.configure(opened.environment == "production")
    stop = _stopped()
    if not await database_up(opened, stop):
        return
    await process.run(opened, listening=None, worker=True, metrics=True, ready=lambda _: _announce("worker"), stop=stop)


def _announce(what: str) -> None:
    print(f"ready: {what}", file=sys.stderr, flush=True)


def _stopped() -> asyncio.Event:
    """Set by Ctrl-C and by SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _print_faults(file: Path, faults: Iterable[Any]) -> None:
    for fault in faults:
        where = [str(file), str(fault.line) if fault.line else "", f" {fault.column}" if fault.column else ""]
        print(f"{':'.join(filter(None, where))}: {fault.message}", file=sys.stderr)


def _tenant_fields(one: Any) -> dict[str, object]:
    """A dealer for programs, named and written as on the wire."""
    from dealer_server.rules.money import money

    fields = one._asdict() | {
        "tenant_id": str(one.tenant_id),
        "balance": money.text(one.balance, one.currency),
        "credit_limit": money.text(one.credit_limit, one.currency),
        "low_balance_threshold": money.text(one.low_balance_threshold, one.currency),
    }
    words = {name: name.split("_") for name in fields}
    return {head + "".join(map(str.capitalize, rest)): fields[name] for name, (head, *rest) in words.items()}


def _prices(texts: list[str] | None) -> dict[str, str]:
    prices = {}
    for text in texts or []:
        package, equals, price = text.partition("=")
        if not equals:
            raise SettingsError(f"--price {text!r}: PACKAGE=PRICE, PACKAGE=off or PACKAGE=list")
        prices[package] = price
    return prices


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is not UTF-8 text: byte {error.start} cannot be read") from None


def _clear_line(error: Exception) -> str:
    """What the operator did not get right, in one line; "" for a fault of ours."""
    import asyncpg

    from dealer_server.db.errors import DatabaseLost
    from dealer_server.db.sealing import CannotOpen
    from dealer_server.dev.embedded import EmbeddedError
    from dealer_server.operations.errors import OperatorError
    from dealer_server.store.schema import NewerSchema, OlderSchema

    told = (SettingsError, CannotStart, OperatorError, EmbeddedError, NewerSchema, OlderSchema, CycloptsError)
    if isinstance(error, told):
        return str(error)
    if isinstance(error, CannotOpen):
        return f"DEALER_SEALING_KEYS does not open this database's secrets: {error}"
    if isinstance(error, DatabaseLost):
        return f"the database cannot be reached: {error.__cause__ or error}"
    if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        return f"the database refused: {error}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return ""


def main() -> None:
    """Runs a command to its end, or ends with one clear line."""
    try:
        app(exit_on_error=False, print_error=False)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if line := _clear_line(error):
            print(f"dealer-server: {line.partition(chr(10))[0]}", file=sys.stderr)
            sys.exit(1)
        raise


if __name__ == "__main__":
    main()
