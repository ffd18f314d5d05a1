"""The listener for suppliers' messages: which are accepted, which are refused."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from dealer_server.api.supplier_events import BODY_BYTES
from support.api_client import Service, running_service
from support.rt_family import running_upstream
from support.supplier_setup import Source, free_address, fresh, hop, set_up
from support.suppliers.smdp import Authority, tls

HEALTH = b'{"notifyType":"CHECK_HEALTH","content":{}}'


class Doors(NamedTuple):
    """A service whose event listener requires certificates signed by `ours`. `path` is the address of rt:near there."""

    service: Service
    address: str
    path: str
    ours: Authority
    folder: Path

    async def post(self, path: str, body: bytes, shown: Authority | None, method: str = "POST") -> int:
        identity = shown.issue("supplier") if shown else None
        context = tls(self.folder, "client", identity, self.ours.pem)
        url = f"https://{self.address}{path}"
        async with aiohttp.ClientSession() as http, http.request(method, url, data=body, ssl=context) as answer:
            return answer.status


@pytest.fixture(params=[(), ("203.0.113.0/24",)], ids=["from-anywhere", "from-elsewhere"])
async def clients(
    postgres: str, template: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Doors, bool]]:
    """Also whether messages may come from here."""
    ours, address = Authority("ours"), free_address()
    mine = ours.issue("events")
    cert, key, ca = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    for file, text in ((cert, mine.cert), (key, mine.key), (ca, ours.pem)):
        file.write_text(text)
    async with fresh(postgres, template) as url, running_upstream() as upstream:
        settings = {
            "baseUrl": upstream.settings.base_url,
            "accessCode": upstream.settings.access_code,
            "secretKey": upstream.settings.secret_key,
            "senderIps": list(request.param),
        }
        setup = await set_up(url, [Source("rt:near", "rt_upstream", settings)], {"TEST-OK": [hop("rt:near", "JC016")]})
        listens = {"supplier_events": address, "supplier_events_cert": cert, "supplier_events_key": key}
        async with running_service(url, **listens, supplier_events_ca=ca) as service:
            yield Doors(service, address, setup.events["rt:near"], ours, tmp_path), not request.param


async def test_only_who_shows_our_certificate_knows_the_address_and_comes_from_there_is_heard(
    clients: tuple[Doors, bool],
):
    client, may_come = clients
    expected = 200 if may_come else 404
    assert await client.post(client.path, HEALTH, client.ours) == expected
    assert await client.post(client.path + "/gsma/rsp2/es2plus/handleNotification", HEALTH, client.ours) == expected
    for path in (client.path[:-1], client.path + "x", "/events/rt:none/x", "/events/rt:near/", "/"):
        assert await client.post(path, HEALTH, client.ours) == 404
    for stranger in (None, Authority("theirs")):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await client.post(client.path, HEALTH, stranger)


async def test_what_is_no_message_is_refused_and_kept_out(clients: tuple[Doors, bool]):
    client, may_come = clients
    assert await client.post(client.path, HEALTH, client.ours, "GET") in (404, 405)
    for body, status in ((b"", 400), (b"{", 400), (b"[]", 400), (b"\xff", 400), (b" " * (BODY_BYTES + 1), 413)):
        assert await client.post(client.path, body, client.ours) == (status if may_come else 404)
    async with client.service.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM supplier_event") == 0
