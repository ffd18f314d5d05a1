"""What is measured: our PostgreSQL, databases with dealers in them, and `dealer-server` processes on one of them."""

import asyncio
import base64
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import asyncpg
import msgspec

from bench.support import processes
from bench.support.calls import Dealer
from bench.support.failure import Failed
from bench.support.processes import Process
from dealer_server import clock, store
from dealer_server.db.database import Database
from dealer_server.db.sealing import KEY_BYTES, DataKeys, MasterKeys
from dealer_server.dev import catalogue as generate
from dealer_server.dev import embedded
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.operations.tenants.create import create_tenant
from dealer_server.operations.tenants.set_terms import Terms
from dealer_server.operations.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.store import schema
from dealer_server.store.distribution.distribute import distribute
from esim_dealer.wire.calls import SetWebhook

T = TypeVar("T")
DEALERS = 1_000
BALANCE = "100000000"
TEMPLATE = "bench_template"
_NONE: Mapping[str, str] = {}


class Postgres(Protocol):
    """A running one; its cluster is `data`/postgres, its role and database are both named `esim`."""

    @property
    def dsn(self) -> str: ...
    @property
    def data(self) -> Path: ...
    @property
    def socket_dir(self) -> Path: ...
    def stop(self) -> None: ...


def pid(postgres: Postgres) -> int:
    return int((postgres.data / "postgres/postmaster.pid").read_text().split("\n", 1)[0])


class Instance:
    """A PostgreSQL in durable mode, with a template from which fresh databases are copied.

    `dealers` are in every database, with large balances and no limit of calls a second; `hot` is the first of them.
    """

    def __init__(self, folder: Path, start: Callable[[Path], Postgres] = embedded.start):
        self.folder = folder
        self.key = f"bench:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"
        self.master_keys = MasterKeys.parse(self.key)
        self.dealers: list[Dealer] = []
        self._postgres = start(folder / "data")
        self._made = 0

    @property
    def hot(self) -> Dealer:
        return self.dealers[0]

    @property
    def socket_dir(self) -> Path:
        return self._postgres.socket_dir

    @property
    def postgres_pid(self) -> int:
        return pid(self._postgres)

    def stop(self) -> None:
        self._postgres.stop()

    def dsn(self, name: str) -> str:
        return self._postgres.dsn.replace("/esim?", f"/{name}?")

    def prepare(self) -> None:
        """Makes the template: schema, catalogue, dealers."""
        self._administer(f"CREATE DATABASE {TEMPLATE}")
        # Nobody waits for these commits, and the next checkpoint makes them durable.
        dsn = self.dsn(TEMPLATE) + "&synchronous_commit=off"
        self.dealers = asyncio.run(filled(dsn, self.master_keys, DEALERS))

    def fresh(self) -> str:
        """A new database like the template; its name."""
        self._made += 1
        name = f"bench_{self._made}"
        self._administer(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return name

    def drop(self, name: str) -> None:
        self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    def checkpoint(self) -> None:
        """So that one run does not pay for another's writes."""
        self._administer("CHECKPOINT")

    def run(self, name: str, work: Callable[[Database], Awaitable[T]]) -> T:
        """`work` on a database, with a connection pool of its own."""

        async def whole() -> T:
            database = await Database.open(self.dsn(name))
            try:
                return await work(database)
            finally:
                await database.close()

        return asyncio.run(whole())

    def data_keys(self, name: str) -> DataKeys:
        async def load(database: Database) -> DataKeys:
            async with database.connection() as connection:
                return await store.data_key.load(connection, self.master_keys)

        return self.run(name, load)

    def subscribe(self, name: str, urls: Mapping[Dealer, str]) -> None:
        """Lets each of these dealers receive its webhooks at its address."""

        async def subscribe(database: Database) -> None:
            for dealer, url in urls.items():
                call = SetWebhook(callback_url=url)
                await endpoint.set_webhook(database, Policy(False, True), dealer.tenant_id, call, clock.now())

        self.run(name, subscribe)

    def serve(self, name: str, settings: Mapping[str, str] = _NONE) -> "Served":
        """`settings`: more environment variables."""
        return Served(self._process(name, "serve", settings=settings))

    def serve_sharing(self, name: str) -> "Served":
        """One of several on a database, without Valkey."""
        return Served(self._process(name, "serve", "--share-nothing"))

    def serve_switched(self, name: str) -> "Served":
        """It stops keeping what the console shows of calls when it is told to (bench/support/keeping.py)."""
        command = [sys.executable, "-m", "bench.support.keeping", "serve"]
        return Served(Process("serve, switched", command, self._log(name, "switched"), self.environment(name)))

    def work(self, name: str, settings: Mapping[str, str] = _NONE) -> Process:
        process = self._process(name, "work", settings=settings)
        process.said("ready: ")
        return process

    def fold(self, name: str) -> Process:
        """It adds up reports, and stops and goes on when it is told to (bench/support/folding.py)."""
        command = [sys.executable, "-m", "bench.support.folding"]
        process = Process("folding", command, self._log(name, "folding"), self.environment(name))
        process.said("ready: ")
        return process

    def environment(self, name: str) -> dict[str, str]:
        # Compiled templates are kept, as they are where a server is installed: compiling them takes it a second.
        left_out = ("DEALER_", "PYTHONDONTWRITEBYTECODE")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
        return inherited | {
            "DATABASE_URL": self.dsn(name),
            "DEALER_ENVIRONMENT": "test",
            "DEALER_SEALING_KEYS": self.key,
            "DEALER_PORT": "0",
            "DEALER_WEBHOOK_ALLOW_LOOPBACK": "true",
            # Stored orders and their webhooks are of a whole year: nothing of it is deleted meanwhile.
            "DEALER_WEBHOOK_DELIVERY_DAYS": "0",
            "DEALER_WEBHOOK_ATTEMPT_DAYS": "0",
        }

    def database_cpu_seconds(self) -> dict[str, float]:
        """By the name of what it is."""
        return {"postgres": processes.family_cpu_seconds(self.postgres_pid)}

    def postgres_memory(self) -> processes.Memory:
        pid = self.postgres_pid
        return processes.memory([pid, *processes.children(pid)])

    def _process(self, name: str, command: str, *options: str, settings: Mapping[str, str] = _NONE) -> Process:
        program = Path(sys.executable).with_name("dealer-server")
        command_line = [str(program), command, *options]
        environment = {**self.environment(name), **settings}
        return Process(f"dealer-server {command}", command_line, self._log(name, command), environment)

    def _log(self, name: str, command: str) -> Path:
        return self.folder / f"{command}-{name}.log"

    def _administer(self, statement: str) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(self.dsn("esim"))
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(run())


class Served:
    """A `dealer-server serve` that answers calls at `address`."""

    def __init__(self, process: Process):
        self.process = process
        self.address = process.said("ready: ")

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()


def secrets_file(folder: Path, dealers: Sequence[Dealer]) -> Path:
    """What the bare endpoint needs to verify their calls."""
    file = folder / "dealers.json"
    file.touch(mode=0o600)
    file.write_bytes(msgspec.json.encode({dealer.app_key: dealer.secret.decode() for dealer in dealers}))
    return file


async def filled(dsn: str, master_keys: MasterKeys, dealers: int, shards: int = 0) -> list[Dealer]:
    """The dealers of a new database, which is distributed over so many shards, if any."""
    connection = await asyncpg.connect(dsn)
    await schema.migrate(connection)
    if shards:
        async for _ in distribute(connection, shards):
            pass
    await connection.close()
    database = await Database.open(dsn)
    try:
        async with database.connection() as connection:
            await store.data_key.load(connection, master_keys)
        await put_packages(database, generate.catalogue("test"), "bench", clock.now)
        made = [await _dealer(database, master_keys, number) for number in range(dealers)]
    finally:
        await database.close()
    first = made[0].tenant_id
    if [dealer.tenant_id for dealer in made] != list(range(first, first + dealers)):
        raise Failed("the dealers' tenantIds do not follow each other, as pgbench's script takes for granted")
    return made


async def _dealer(database: Database, master_keys: MasterKeys, number: int) -> Dealer:
    terms = Terms(name=f"Bench {number}", balance=BALANCE, qps=0, rt_face="signed")
    made = await create_tenant(database, master_keys, "test", "USD", terms, "bench", clock.now)
    return Dealer(int(made.tenant_id), made.app_key, made.app_secret.encode())
