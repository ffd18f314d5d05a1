"""`dealer-server supplier`, as an operator types it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from dealer_server.suppliers.es2plus.client import Es2PlusSettings
from support.api_client import running_service
from support.processes import PROGRAM, Done, environment, run
from support.rt_family import SECRET, Upstream, package, running_upstream
from support.supplier_setup import fresh
from support.suppliers.smdp import Authority


class Operator:
    """Types commands; `upstream` is the supplier they are about."""

    def __init__(self, env: dict[str, str], upstream: Upstream, folder: Path):
        self.env = env
        self.upstream = upstream
        self.folder = folder

    async def types(self, *arguments: str) -> Done:
        return await run("supplier", *arguments, env=self.env)

    async def types_into(self, given: str, *arguments: str) -> str:
        """With something on standard input; what it prints."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "supplier", *arguments, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe
        )
        out, err = await process.communicate(given.encode())
        assert process.returncode == 0, err
        return out.decode()

    async def done(self, *arguments: str) -> str:
        ended = await self.types(*arguments)
        assert ended.status == 0, ended
        return ended.out

    async def refused(self, *arguments: str) -> str:
        ended = await self.types(*arguments)
        assert ended.status != 0 and len(ended.err.strip().splitlines()) == 1, ended
        return ended.err

    def file(self, content: bytes | str) -> str:
        path = self.folder / "file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    async def sets_up(self) -> None:
        await self.done("set", "rt:ea", self.file(msgspec.json.encode(self.upstream.settings)), "--kind", "rt_upstream")

    async def shown(self) -> dict[str, Any]:
        return json.loads(await self.done("show", "rt:ea", "--json"))


@pytest.fixture
async def operator(postgres: str, template: str, tmp_path: Path) -> AsyncIterator[Operator]:
    async with fresh(postgres, template) as url, running_upstream() as upstream:
        async with running_service(url, worker=False):
            pass  # puts the catalogue on sale
        yield Operator(environment(url), upstream, tmp_path)


async def test_a_supplier_is_set_up_shown_without_secrets_and_asked_how_it_is(operator: Operator):
    assert "no supplier is set up" in await operator.done("list")
    await operator.sets_up()
    shown = await operator.shown()
    assert (shown["kind"], shown["status"], shown["purchases"]) == ("rt_upstream", "ACTIVE", {})
    assert shown["settings"]["baseUrl"] == operator.upstream.settings.base_url
    assert shown["events"].startswith("/events/rt:ea/")
    assert SECRET not in await operator.done("show", "rt:ea") + await operator.done("list", "--json")
    assert json.loads(await operator.done("check", "rt:ea", "--json"))["up"] is True
    await operator.sets_up()
    assert (await operator.shown())["events"] == shown["events"], "its address stays when it gets new settings"
    await operator.upstream.leave()
    assert (await operator.types("check", "rt:ea")).status == 1


async def test_a_dash_reads_standard_input(operator: Operator):
    settings = msgspec.json.encode(operator.upstream.settings).decode()
    assert "is set" in await operator.types_into(settings, "set", "rt:ea", "-", "--kind", "rt_upstream")
    assert "1 ICCIDs are new" in await operator.types_into("8944538532008160222\n", "iccids", "rt:ea", "TYPE", "-")


async def test_certificates_are_shown_by_what_tells_them_apart(operator: Operator):
    authority = Authority("Their CA")
    mine = authority.issue("dealer")
    settings = Es2PlusSettings(
        base_url="https://smdp.example.com", requester_id="ACME", smdp_address="rsp.example.com", ca=authority.pem,
        cert=mine.cert, key=mine.key,
    )  # fmt: skip
    await operator.done("set", "es2:a", operator.file(msgspec.json.encode(settings)), "--kind", "es2plus")
    for shown in (await operator.done("show", "es2:a"), await operator.done("show", "es2:a", "--json")):
        assert "BEGIN" not in shown and "PRIVATE" not in shown
        for name, pem in (("Their CA", authority.pem), ("dealer", mine.cert)):
            one = x509.load_pem_x509_certificate(pem.encode())
            assert f"CN={name}, expires {one.not_valid_after_utc:%Y-%m-%d}" in shown
            assert one.fingerprint(hashes.SHA256()).hex() in shown


async def test_wrong_settings_are_refused_by_name(operator: Operator):
    good = msgspec.to_builtins(operator.upstream.settings)
    for changed, named in ((good | {"baseUrl": "ftp://x"}, "baseUrl"), (good | {"colour": "red"}, "colour")):
        text = operator.file(json.dumps(changed))
        assert named in await operator.refused("set", "rt:ea", text, "--kind", "rt_upstream")
    assert "not a JSON document" in await operator.refused("set", "rt:ea", operator.file("{"), "--kind", "chain")
    assert "carrier" in await operator.refused("set", "rt:ea", operator.file("{}"), "--kind", "carrier")
    assert "code" in await operator.refused("set", "RT EA", operator.file(json.dumps(good)), "--kind", "rt_upstream")


async def test_a_route_names_suppliers_that_are_there(operator: Operator):
    await operator.sets_up()
    assert "made by rt:ea" in await operator.done("route", "TEST-OK", "rt:ea=JC016@1.80")
    assert "no supplier rt:eb" in await operator.refused("route", "TEST-OK", "rt:eb=JC016")
    assert "each once" in await operator.refused("route", "TEST-OK", "rt:ea=A", "rt:ea=B")
    assert "the first" in await operator.refused("route", "TEST-OK", "rt:ea=A", "stock=B")
    assert "no package" in await operator.refused("route", "NO-SUCH", "rt:ea=A")
    assert "SUPPLIER=SKU" in await operator.refused("route", "TEST-OK", "rt:ea")
    assert "cost" in await operator.refused("route", "TEST-OK", "rt:ea=A@1.005")


async def test_what_a_reseller_lists_is_sold_at_a_margin_once_it_was_seen(operator: Operator):
    await operator.sets_up()
    operator.upstream.book.packages["BAD"] = package("BAD", duration=0)
    preview = json.loads(await operator.done("import", "rt:ea", "--markup", "50", "--prefix", "EA-", "--json"))
    kinds = {one["sku"]: (one["kind"], one["packageCode"]) for one in preview}
    assert kinds == {
        "JC016": ("ADDED", "EA-JC016"),
        "TOPUP_JC016": ("ADDED", "EA-TOPUP_JC016"),
        "BAD": ("LEFT_OUT", None),
    }
    assert "no package" in await operator.refused("route", "EA-JC016", "rt:ea=JC016"), "nothing is written by looking"
    ended = await operator.types("import", "rt:ea", "--markup", "50", "--prefix", "EA-", "--yes")
    assert "2 packages are written" in ended.err and "duration" in ended.out
    assert {one["sku"] for one in json.loads(await operator.done("import", "rt:ea", "--markup", "50", "--prefix", "EA-",
                                                                 "--json"))} == {"BAD"}  # fmt: skip
    assert "percent" in await operator.refused("import", "rt:ea", "--markup", "lots")


async def test_iccids_are_loaded_all_or_none(operator: Operator):
    await operator.sets_up()
    good = "8944538532008160222"
    assert "line 2" in await operator.refused("iccids", "rt:ea", "TYPE", operator.file(f"{good}\n12\n"))
    assert "1 ICCIDs are new" in await operator.done("iccids", "rt:ea", "TYPE", operator.file(f"{good}\n\n"))
    assert "0 ICCIDs are new" in await operator.done("iccids", "rt:ea", "TYPE", operator.file(good))
    assert (await operator.shown())["freeIccids"] == {"TYPE": 1}


async def test_a_supplier_is_paused_and_resumed(operator: Operator):
    await operator.sets_up()
    await operator.done("pause", "rt:ea")
    assert (await operator.shown())["status"] == "PAUSED"
    await operator.done("resume", "rt:ea")
    assert (await operator.shown())["status"] == "ACTIVE"
    assert "no supplier" in await operator.refused("pause", "rt:no")


async def test_only_what_waits_can_be_resolved(operator: Operator):
    await operator.sets_up()
    for outcome in ("--not-bought", "--applied"):
        assert "does not wait" in await operator.refused("resolve", "u-1-0-1", outcome)
    assert "exactly one" in await operator.refused("resolve", "u-1-0-1", "--applied", "--not-bought")
    assert "exactly one" in await operator.refused("resolve", "u-1-0-1")
    assert "--iccid" in await operator.refused("resolve", "u-1-0-1", "--bought", "--iccid", "8944538532008160222")
    assert "--iccid" in await operator.refused("resolve", "t-1-0-1", "--bought")
