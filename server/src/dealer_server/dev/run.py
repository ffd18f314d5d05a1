"""`dealer-server dev`: everything in one process on an embedded PostgreSQL with a demo dealer, for trials."""

import base64
import hmac
import json
import os
import secrets
import shlex
import sys
from pathlib import Path

import msgspec

from dealer_server import clock, logs, settings, sockets, store
from dealer_server.db.connection import connect
from dealer_server.db.database import Database
from dealer_server.db.sealing import KEY_BYTES, credential_context
from dealer_server.dev import cluster, embedded, history, instance, receivers, seed, wholesalers
from dealer_server.operations.tenants.list import list_tenants
from dealer_server.operations.users import accounts
from dealer_server.operations.users.password import Passwords
from dealer_server.settings import Settings
from dealer_server.store import schema
from dealer_server.store.distribution.distribute import distribute
from dealer_server.store.notices import recipients
from dealer_server.store.notices.recipients import Setting
from dealer_server.wiring import listening, process
from dealer_server.wiring.listening import Listening

HOST = "127.0.0.1"
OPERATOR, DEALER = "operator", "dealer"
CLUSTER_SHARDS = 8
RECEIVERS_PORT = "receivers.port"
"""A file of the data folder."""


class SignIn(msgspec.Struct, frozen=True, rename="camel"):
    """A user of the console, created at the first start."""

    name: str
    password: str


class Demo(msgspec.Struct, frozen=True, rename="camel"):
    """What a first call and the other commands need to reach this instance."""

    base_url: str
    app_key: str
    app_secret: str
    tenant_id: str
    console_url: str
    operator: SignIn
    dealer: SignIn
    env: dict[str, str]


async def run(
    port: int,
    data: Path | None,
    *,
    fresh: bool,
    as_json: bool,
    speed: float | None = None,
    on_cluster: bool = False,
    days: int = 0,
) -> None:
    """`days`: of orders that a new data folder begins with. Raises EmbeddedError, OSError where the port is taken,
    CannotStart."""
    logs.configure(as_json=False)
    stop = process.stop_on_signal()
    api = sockets.bind(HOST, port)
    folder = data or embedded.default_folder()
    if on_cluster and data is None:
        folder = folder.with_name(f"{folder.name}-cluster")
    if on_cluster:
        database = await cluster.start(folder, fresh=fresh)
    else:
        if fresh:
            embedded.erase(folder)
        database = embedded.start(folder)
    try:
        if not _key_file(folder).exists():
            print("making a demo dealer and its orders: up to a minute ...", file=sys.stderr, flush=True)
        opened = _settings(folder, database.dsn, api.getsockname()[1], speed)
        await _migrate(database.dsn, distributed=on_cluster)
        suppliers = wholesalers.RtServer(seed.sold_packages())
        async with receivers.running(history.ALL, suppliers.routes(), folder / RECEIVERS_PORT) as receiving:
            demo = await _seeded(opened, days, receiving)
            bound = Listening(api, listening.console(opened), supplier_events=listening.supplier_events(opened))
            with instance.announced(demo.base_url, demo.env):
                ready = process.rarely_collecting(lambda _: _show(demo, as_json))
                await process.run(opened, listening=bound, worker=True, ready=ready, stop=stop)
    finally:
        database.stop()


TOPUP_INSTRUCTIONS = (
    r"Beneficiary: eSIM Dealer Ltd\nBank: Made-up Bank\nIBAN: GB00 TEST 0000 0000 0000 00\nBIC: TESTGB2L"
)


def _settings(folder: Path, dsn: str, port: int, speed: float | None) -> Settings:
    return settings.read(
        DATABASE_URL=dsn,
        environment="test",
        sealing_keys=_sealing_key(folder),
        host=HOST,
        port=port,
        processes=1,
        webhook_allow_loopback=True,
        mailbox=True,
        supplier_speed=speed,
        topup_instructions=TOPUP_INSTRUCTIONS,
        usage_event_seconds=0,  # in a trial nobody should wait for an event
    )


def _key_file(folder: Path) -> Path:
    return folder / "sealing.key"


def _sealing_key(folder: Path) -> str:
    """The key in the data folder; created at the first start."""
    file = _key_file(folder)
    if not file.exists():
        text = f"dev:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"
        fresh = file.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            opened.write(text)
        fresh.rename(file)
    return file.read_text().strip()


async def _migrate(dsn: str, *, distributed: bool) -> None:
    connection = await connect(dsn)
    try:
        await schema.migrate(connection)
        if distributed:
            async for _ in distribute(connection, CLUSTER_SHARDS):
                pass
    finally:
        await connection.close()


async def _seeded(opened: Settings, days: int, receiving: str) -> Demo:
    """The demo dealer; where the database is new it is created, with catalogue and stock. `receiving`: the address at
    which made-up dealers receive webhooks."""
    database = await Database.open(opened.database_url)
    try:
        tenants = {dealer.name: dealer for dealer in await list_tenants(database)}
        if demo := tenants.get(history.DEMO.name):
            app_key = demo.app_key
            await seed.put_new_scripts(database)
            dealers = [(one, int(tenants[one.name].tenant_id)) for one in history.ALL if one.name in tenants]
            await receivers.move(database, dealers, receiving, clock.now)
            await seed.move_suppliers(database, opened, receiving)
        else:
            app_key = await seed.seed(database, opened, days, receiving)
        async with database.connection() as connection:
            access = await store.tenant.load_access(connection, app_key)
        assert access is not None
        context = credential_context(access.tenant_id, app_key, access.secret_version)
        secret = opened.master_keys.open(access.sealed_secret, context).decode()
        operator = await _sign_in(database, opened, OPERATOR, None)
        dealer = await _sign_in(database, opened, DEALER, access.tenant_id)
    finally:
        await database.close()
    env = {
        "DATABASE_URL": opened.database_url,
        "DEALER_SEALING_KEYS": opened.sealing_keys.get_secret_value(),
        "DEALER_ENVIRONMENT": opened.environment,
        "DEALER_WEBHOOK_ALLOW_LOOPBACK": "true",
    }
    console = f"{opened.base_url}/console"
    return Demo(opened.base_url, app_key, secret, str(access.tenant_id), console, operator, dealer, env)


async def _sign_in(database: Database, opened: Settings, name: str, tenant_id: int | None) -> SignIn:
    """An admin of the console, created at the first start. The password follows from the sealing key."""
    key = opened.sealing_keys.get_secret_value().encode()
    password = base64.b32encode(hmac.digest(key, f"console {name}".encode(), "sha256")[:10]).decode().lower()
    if not any(account.name == name for account in await accounts.list_users(database)):
        made = await accounts.create(database, Passwords(), tenant_id, name, "admin", "dev", password)
        address = Setting(mail=f"{name}@example.com")  # its mails are kept, and shown at /console/mails
        await database.run(lambda connection: recipients.put_setting(connection, made.user_id, address))
    return SignIn(name, password)


def _show(demo: Demo, as_json: bool) -> None:
    if as_json:
        print(json.dumps(msgspec.to_builtins(demo)), flush=True)
        return
    # Plain lines: a box would wrap or cut what is to be copied where the terminal is narrow.
    print(
        "esim-dealer, test environment\n\n"
        f"base address  {demo.base_url}\nAppKey        {demo.app_key}\nAppSecret     {demo.app_secret}\n\n"
        f"console       {demo.console_url}\n"
        f"  as operator {demo.operator.name}  {demo.operator.password}\n"
        f"  as dealer   {demo.dealer.name}    {demo.dealer.password}\n\n"
        f"docs          {demo.base_url}/docs\ninterface     {demo.base_url}/openapi.json\nstop          Ctrl-C\n\n"
        "A first call, in another terminal:\n"
    )
    for name, value in (
        ("ESIM_DEALER_URL", demo.base_url),
        ("ESIM_DEALER_APP_KEY", demo.app_key),
        ("ESIM_DEALER_APP_SECRET", demo.app_secret),
    ):
        print(f"export {name}={shlex.quote(value)}")
    print(".venv/bin/esim-dealer order TEST-OK --wait\n", flush=True)


__all__ = ["Demo", "run"]
