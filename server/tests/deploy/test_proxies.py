"""HAProxy and nginx with the configurations of deploy/ in front of two serve: TLS, each dealer to one process, the
client's address, and restarts that no dealer notices."""

import asyncio
import csv
import re
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.api_client import ApiClient, Service, running_service
from support.deploy.certificates import self_signed
from support.deploy.ports import free_ports
from support.deploy.programs import needs
from support.paths import ROOT
from support.patience import PATIENCE, found
from support.processes import Process, environment, running

pytestmark = pytest.mark.deploy
DRAIN_SECONDS = 4
RESTARTS = 4
BUYERS = 4


@dataclass
class Proxied:
    """Two serve processes and the proxy in front of them."""

    service: Service
    url: str
    ports: tuple[int, int]
    serves: list[Process]
    tls: ssl.SSLContext
    start: Callable[[int], Awaitable[Process]]

    @asynccontextmanager
    async def dealer(self, address: str = "127.0.0.1", **terms: object) -> AsyncIterator[ApiClient]:
        """A new dealer, who calls through the proxy from this address."""
        made = await self.service.tenant(**{"balance": "1000", "qps": 0, **terms})
        transport = httpx2.AsyncHTTPTransport(verify=self.tls, local_address=address)
        async with httpx2.AsyncClient(transport=transport, timeout=PATIENCE) as http:
            yield ApiClient(self.url, int(made.tenant_id), made.app_key, made.app_secret, http)

    async def answered(self) -> list[float]:
        """How many calls each process has answered."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            texts = [(await http.get(f"{serve.monitoring}/metrics")).text for serve in self.serves]
        return [
            sum(
                sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == "dealer_api_calls_total"
            )
            for text in texts
        ]


def haproxy(folder: Path, port: int, serves: tuple[int, int]) -> list[str]:
    """Its command, with the configuration of deploy/haproxy on these ports."""
    program = needs("haproxy", "haproxy")
    text = (ROOT / "deploy/haproxy/haproxy.cfg").read_text()
    (folder / "both.pem").write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())
    changed = {
        "maxconn 20000": "maxconn 1000",
        "log /dev/log local0": "log stdout format raw local0",
        "    user haproxy\n    group haproxy\n": "",
        "/run/haproxy/admin.sock": f"{folder}/admin.sock",
        "/etc/haproxy/esim-dealer.pem": f"{folder}/both.pem",
        "bind :443": f"bind 127.0.0.1:{port}",
        "    bind :80\n": "",
        "127.0.0.1:8405": f"127.0.0.1:{free_ports(1)[0]}",
        "127.0.0.1:8080": f"127.0.0.1:{serves[0]}",
        "127.0.0.1:8081": f"127.0.0.1:{serves[1]}",
    }
    return [program, "-W", "-f", written(folder / "haproxy.cfg", text, changed)]


def nginx(folder: Path, port: int, serves: tuple[int, int]) -> list[str]:
    program = needs("nginx", "nginx-light")
    text = (ROOT / "deploy/nginx/esim-dealer.conf").read_text()
    changed = {
        "listen 80;": f"listen 127.0.0.1:{free_ports(1)[0]};",
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/nginx/esim-dealer.crt": f"{folder}/cert.pem",
        "/etc/nginx/esim-dealer.key": f"{folder}/key.pem",
        "/var/log/nginx/esim-dealer.log": f"{folder}/access.log",
        "127.0.0.1:8080": f"127.0.0.1:{serves[0]}",
        "127.0.0.1:8081": f"127.0.0.1:{serves[1]}",
    }
    site = written(folder / "site.conf", text, changed)
    kept = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ {kept} include {site}; }}"
    (folder / "nginx.conf").write_text(main)
    return [program, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]


def written(file: Path, text: str, changed: dict[str, str]) -> str:
    for old, new in changed.items():
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text)
    return str(file)


@asynccontextmanager
async def program(command: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.fixture(params=[haproxy, nginx], ids=["haproxy", "nginx"])
async def proxied(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> AsyncIterator[Proxied]:
    cert, _ = self_signed(tmp_path)
    port, *ports = free_ports(3)
    command = request.param(tmp_path, port, (ports[0], ports[1]))
    drain = DRAIN_SECONDS if request.param is haproxy else 0
    env = environment(
        database_url,
        DEALER_TRUSTED_PROXIES="127.0.0.1",
        DEALER_PUBLIC_URL=f"https://127.0.0.1:{port}",
        DEALER_CONSOLE="",
        DEALER_DRAIN_SECONDS=str(drain),
    )
    tls = ssl.create_default_context(cafile=cert)
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(running_service(database_url, worker=False))

        async def start(number: int) -> Process:
            arguments = ("serve", "--port", str(ports[number]), "--share-nothing")
            return await stack.enter_async_context(running(*arguments, env=env))

        serves = [await start(number) for number in range(2)]
        proxy = await stack.enter_async_context(program(command))
        one = Proxied(service, f"https://127.0.0.1:{port}", (ports[0], ports[1]), serves, tls, start)
        async with httpx2.AsyncClient(verify=tls, trust_env=False) as http:

            async def answers() -> bool | None:
                assert proxy.returncode is None, "the proxy ended by itself"
                try:
                    return True if (await http.get(f"{one.url}/healthz")).status_code == 200 else None
                except httpx2.TransportError:
                    return None

            await found(answers)
        yield one


async def test_dealers_stick_to_a_process_over_tls_and_their_address_is_passed_on(proxied: Proxied):
    went = set()
    for _ in range(8):
        before = await proxied.answered()
        async with proxied.dealer() as dealer:
            for _ in range(5):
                assert (await dealer.order()).code == "000000"
        gained = [after - then for after, then in zip(await proxied.answered(), before, strict=True)]
        assert sorted(gained) == [0, 5]
        went.add(gained.index(5))
    assert went == {0, 1}, "all dealers at one process"
    async with proxied.dealer("127.0.0.2", ip_allow=["127.0.0.2"]) as near:
        assert (await near.post("/health")).code == "000000"
        async with proxied.dealer() as far:
            elsewhere = replace(near, http=far.http)
            body = b"{}"
            for claimed in ({}, {"X-Forwarded-For": "127.0.0.2"}):
                headers = near.headers(body) | claimed
                assert (await elsewhere.send("/open-api/v1/health", body, headers)).status == 403


async def test_no_call_fails_while_the_processes_are_restarted_one_after_the_other(proxied: Proxied):
    codes: list[str] = []
    stopped = asyncio.Event()

    async def buy(dealer: ApiClient) -> None:
        while not stopped.is_set():
            codes.append((await dealer.order()).code)

    async with AsyncExitStack() as stack:
        dealers = [await stack.enter_async_context(proxied.dealer(balance="1000000")) for _ in range(BUYERS)]
        buying = [asyncio.create_task(buy(dealer)) for dealer in dealers]
        for turn in range(RESTARTS):
            number = turn % 2
            proxied.serves[number].signal(signal.SIGTERM)
            assert await proxied.serves[number].ended() == 0
            proxied.serves[number] = await proxied.start(number)
            await both_answer(proxied)
        stopped.set()
        await asyncio.gather(*buying)
    assert len(codes) > 20 * RESTARTS and set(codes) == {"000000"}, sorted(set(codes))
    assert await proxied.service.audit() == []


async def test_a_dealer_is_told_that_the_database_is_away(
    proxied: Proxied, postgres: str, database_url: str, tmp_path: Path
):
    name = urlsplit(database_url).path.removeprefix("/")
    admin = await asyncpg.connect(postgres)
    async with proxied.dealer() as dealer:
        assert (await dealer.order()).code == "000000"
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            await none_is_ready(proxied, tmp_path / "admin.sock")
            for _ in range(4):
                assert (await dealer.order()).code == "900001"
        finally:
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await admin.close()

        async def bought() -> bool | None:
            return (await dealer.order()).code == "000000" or None

        await found(bought)
    assert await proxied.service.audit() == []


async def none_is_ready(proxied: Proxied, haproxy_socket: Path) -> None:
    """Returns once both processes say so, and HAProxy has seen it. nginx does not ask."""

    async def look() -> bool | None:
        async with httpx2.AsyncClient(trust_env=False) as http:
            if any([(await http.get(f"{serve.monitoring}/readyz")).status_code == 200 for serve in proxied.serves]):
                return None
        if not haproxy_socket.exists():
            return True
        reader, writer = await asyncio.open_unix_connection(haproxy_socket)
        writer.write(b"show stat\n")
        rows = csv.DictReader((await reader.read()).decode().splitlines())
        writer.close()
        states = {row["svname"]: row["status"] for row in rows if row["# pxname"] == "serve"}
        return (states["serve1"].startswith("DOWN") and states["serve2"].startswith("DOWN")) or None

    await found(look)


async def both_answer(proxied: Proxied) -> None:
    """Returns once the proxy sends calls to both processes."""
    begun = await proxied.answered()

    async def look() -> bool | None:
        async with httpx2.AsyncClient(verify=proxied.tls, trust_env=False) as http:
            for number in range(16):
                await http.post(f"{proxied.url}/open-api/v1/health", headers={"RT-AccessCode": f"ak_test_{number}"})
        return all(now > then for now, then in zip(await proxied.answered(), begun, strict=True)) or None

    await found(look)


@pytest.mark.parametrize(("make", "check"), [(haproxy, ["-c"]), (nginx, ["-t"])], ids=["haproxy", "nginx"])
def test_a_configuration_has_no_warnings(make: Callable[..., list[str]], check: list[str], tmp_path: Path):
    self_signed(tmp_path)
    port, *ports = free_ports(3)
    done = subprocess.run([*make(tmp_path, port, (ports[0], ports[1])), *check], capture_output=True, text=True)
    assert done.returncode == 0 and not re.search("warn", done.stdout + done.stderr, re.IGNORECASE), done.stderr
