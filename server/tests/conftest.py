"""A real PostgreSQL for every test: one server per run, one database per module, copied from a migrated template."""

import itertools
from collections.abc import AsyncIterator

import asyncpg
import pytest

from dealer_server.db.database import Database
from dealer_server.dev import cluster, embedded
from dealer_server.store import schema
from dealer_server.store.distribution.distribute import distribute
from support import databases
from support.api_client import ApiClient, Service, put_catalogue, running_service
from support.browser import Browser, browser, signed_in
from support.webhook_fixture import Receiver, listening

SHARDS = 4
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
async def postgres(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The address of a PostgreSQL server that lives as long as the test run; with --cluster that of a coordinator."""
    with databases.postgres_folder() as folder:
        if request.config.getoption("--cluster"):
            started = await cluster.start(folder / "data", fast_and_unsafe=True)
            databases.use_cluster(started)
            try:
                yield started.dsn
            finally:
                started.stop()
            return
        server = embedded.start(folder / "data", fast_and_unsafe=True)
        try:
            yield server.dsn
        finally:
            server.stop()


@pytest.fixture(scope="session")
async def template(postgres: str) -> str:
    """A database with all migrations and the test catalogue, to be copied."""
    dsn = await databases.new(postgres, "migrated")
    connection = await asyncpg.connect(dsn)
    await schema.migrate(connection)
    if databases.on_a_cluster():
        async for _ in distribute(connection, SHARDS):
            pass
    await connection.close()
    database = await Database.open(dsn)
    await put_catalogue(database)
    await database.close()
    if databases.on_a_cluster():
        await databases.close(postgres, "migrated")
    return "migrated"


@pytest.fixture(scope="module")
async def database_url(postgres: str, template: str) -> AsyncIterator[str]:
    """A freshly migrated database for one test module."""
    name = f"test_{next(_numbers)}"
    yield await databases.copy(postgres, name, template)
    await databases.drop(postgres, name)


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """The whole service, API and worker, on a loopback port, with the test catalogue."""
    async with running_service(database_url) as service:
        yield service


@pytest.fixture(scope="module")
async def exact(service: Service) -> AsyncIterator[None]:
    """The audit finds nothing after the tests of a module. For `pytest.mark.usefixtures`."""
    yield
    assert await service.audit() == []


@pytest.fixture
async def dealer(service: Service) -> AsyncIterator[ApiClient]:
    """A fresh dealer with 1 000 USD and no limit of calls."""
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        yield client


@pytest.fixture
async def stranger(service: Service) -> AsyncIterator[ApiClient]:
    """Another dealer of the same service."""
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        yield client


@pytest.fixture
async def admin(service: Service) -> AsyncIterator[Browser]:
    """Somebody at the console who is an operator's admin."""
    async with signed_in(service) as one:
        yield one


@pytest.fixture
async def visitor(service: Service) -> AsyncIterator[Browser]:
    """A browser in which nobody has signed in."""
    async with browser(service) as one:
        yield one


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A dealer's own server, to which webhooks are sent."""
    async with listening(1) as [one]:
        yield one
