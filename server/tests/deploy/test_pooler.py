"""A real PgBouncer between the service and PostgreSQL: orders through it with pool_mode = session, a refusal to start
where it would lose what a session holds."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from support.api_client import running_service
from support.deploy.ports import free_ports
from support.deploy.programs import needs
from support.patience import found
from support.processes import environment, run, running

pytestmark = pytest.mark.deploy


@asynccontextmanager
async def pgbouncer(folder: Path, database_url: str, mode: str, more: str = "") -> AsyncIterator[str]:
    """The address of the database through it."""
    program = needs("pgbouncer", "pgbouncer")
    parts, [port] = urlsplit(database_url), free_ports(1)
    query, name = parse_qs(parts.query), parts.path.removeprefix("/")
    users = folder / "users.txt"
    users.write_text('"esim" ""\n')
    file = folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n{name} = host={query['host'][0]} port={query['port'][0]} dbname={name} user=esim\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"auth_file = {users}\npool_mode = {mode}\ndefault_pool_size = 90\nmax_client_conn = 500\n{more}\n"
    )
    log = folder / "log"
    folder.chmod(0o755)
    # It does not run as root; the socket's folder is private to PostgreSQL's user.
    user = ("-u", Path(query["host"][0]).owner()) if os.geteuid() == 0 else ()
    with log.open("wb") as opened:
        process = await asyncio.create_subprocess_exec(program, *user, str(file), stdout=opened, stderr=opened)
    url = f"postgresql://esim@127.0.0.1:{port}/{name}"

    async def answers() -> bool | None:
        assert process.returncode is None, log.read_text()
        try:
            await (await asyncpg.connect(url)).close()
        except OSError:
            return None
        return True

    try:
        await found(answers)
        yield url
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that PgBouncer's user may enter."""
    made = tmp_path_factory.mktemp("pgbouncer")
    for step in (made, made.parent, made.parent.parent):
        step.chmod(0o755)
    return made


async def test_orders_are_served_through_a_pooler_of_sessions(database_url: str, folder: Path):
    async with pgbouncer(folder, database_url, "session") as pooled, running_service(pooled) as service:
        async with service.client(await service.tenant(balance="1000", qps=0)) as dealer:
            answers = await asyncio.gather(*[dealer.order() for _ in range(50)])
            assert {answer.code for answer in answers} == {"000000"}
        assert await service.audit() == []
        direct = await asyncpg.connect(database_url)
        sessions = await direct.fetch(
            "SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1"
        )
        await direct.close()
        assert {"esim-dealer", "esim-dealer session", "esim-dealer listener"} <= {row[0] for row in sessions}
        for _ in range(2):  # also once a pool has taken the connection back
            async with service.database.connection() as connection:
                assert await connection.fetchval("SHOW lock_timeout") == "10s"


@pytest.mark.parametrize(
    ("mode", "more", "says"),
    [
        ("transaction", "", "changes server connections between transactions"),
        (
            "session",
            "ignore_startup_parameters = lock_timeout",
            "drops the setting lock_timeout",
        ),
    ],
)
async def test_a_pooler_that_does_not_fit_is_refused_at_the_start(
    database_url: str, folder: Path, mode: str, more: str, says: str
):
    async with pgbouncer(folder, database_url, mode, more) as pooled:
        env = environment(pooled)
        for command in ("serve", "work"):
            async with running(command, env=env, ready=False) as process:
                assert await process.ended() == 1
                assert says in process.said and "Traceback" not in process.said
        done = await run("migrate", env=env)
        assert done.status == 1 and says in done.err
