"""Do the samples of the documentation do what it says? Those of the quick start, of signing and of files have tests of
their own, which are named here: a sample that no test runs fails the first test."""

import ast
import asyncio
import json
import os
import re
import shlex
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dealer_server.__main__ import app
from dealer_server.docs_site import contents
from dealer_server.rules.orders import bulk
from dealer_server.suppliers.chain.client import ChainSettings
from dealer_server.suppliers.es2plus.client import Es2PlusSettings
from dealer_server.suppliers.rt.calls import RtSettings
from esim_dealer import webhook
from esim_dealer.wire.signing import signature
from support.api_client import ApiClient, Service
from support.paths import ROOT
from support.patience import PATIENCE
from support.rt_client import PREFIX, RtClient
from support.webhook_fixture import Receiver

SOURCES = sorted({entry.source for entry in contents.entries() if entry.source})
HERE = "server/tests/docs_site/test_docs_samples.py"
SIGNING, TYPESCRIPT = "server/tests/project/test_docs_signing.py", "server/tests/sdk/test_typescript.py"
RUN_BY = {
    ("docs/quickstart.md", "bash"): SIGNING,
    **{("docs/guides/signing.md", language): SIGNING for language in ("bash", "python", "js", "php", "go", "java")},
    ("docs/guides/receive-webhooks.md", "python"): "sdk/tests/test_guide.py",
    ("docs/guides/typescript.md", "ts"): TYPESCRIPT,
    ("docs/guides/catalog-import.md", "csv"): "server/tests/rules/test_catalogue_rules.py",
    ("docs/operating/runbooks.md", "sql"): "server/tests/store/test_audit.py",
    ("docs/guides/stock.md", "csv"): "server/tests/operations/test_stock.py",
    ("docs/guides/buy-by-csv.md", "csv"): HERE,
    ("docs/guides/receive-notices.md", "python"): HERE,
    ("docs/guides/after-the-sale.md", "python"): HERE,
    ("docs/guides/testing.md", "python"): HERE,
    ("sdk/README.md", "python"): HERE,
    # Patterns for contributors: they use what the reader is about to write.
    ("docs/guides/add-a-console-page.md", "python"): HERE,
    ("docs/guides/add-a-supplier.md", "python"): HERE,
    ("docs/guides/add-an-operation.md", "python"): HERE,
}
NOT_RUN = {"", "json", "sh"}  # text, answers and settings; commands of the service are read below


def blocks(source: str, language: str | None = None) -> list[tuple[str, str]]:
    """Language and text of each block of code."""
    text = (ROOT / source).read_text()
    found = re.findall(r"^( *)```(\w*)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [(name, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)) for indent, name, code in found
            if language in (None, name)]  # fmt: skip


def texts(source: str, language: str) -> list[str]:
    return [text for _, text in blocks(source, language)]


def commands() -> list[str]:
    found = (re.findall(r"^ *dealer-server (.+)$", (ROOT / source).read_text(), re.MULTILINE) for source in SOURCES)
    return sorted({line for lines in found for line in lines})


def test_every_sample_is_run_by_a_test():
    found = {(source, language) for source in SOURCES for language, _ in blocks(source) if language not in NOT_RUN}
    assert found == set(RUN_BY)
    for (source, _), test in RUN_BY.items():
        assert Path(source).name in (ROOT / test).read_text(), (source, test)


@pytest.mark.parametrize("source", SOURCES)
def test_json_is_json(source: str):
    for text in texts(source, "json"):
        comment, _, rest = text.partition("\n")
        json.loads(f"{{{rest}}}" if comment.startswith("//") else text)


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_service_are_understood(command: str):
    assert app.parse_args(shlex.split(command, comments=True), print_error=False, exit_on_error=False)[0]


@pytest.mark.parametrize("source", [source for source, language in RUN_BY if "/add-a" in source])
def test_patterns_for_contributors_are_python(source: str):
    assert all(ast.parse(text.replace("…", "...")) for text in texts(source, "python") if not text.startswith(" "))


def test_settings_of_suppliers_are_taken():
    es2plus, *others = texts("docs/guides/connect-suppliers.md", "json")
    reseller, other = (text.replace("…", "x") for text in others)
    assert msgspec.json.decode(reseller, type=RtSettings) and msgspec.json.decode(other, type=ChainSettings)
    with pytest.raises(msgspec.ValidationError, match=r"ca must be .*; cert and key must be "):
        msgspec.json.decode(es2plus, type=Es2PlusSettings)  # its certificates are left out on the page


def test_the_csv_of_orders_is_read():
    [text] = texts("docs/guides/buy-by-csv.md", "csv")
    faults = bulk.read(text, lambda _: None, lambda *_: None).faults
    assert {fault.column for fault in faults} == {"packageCode"}  # as nothing is on sale here


# Python


async def ran(code: str, dealer: ApiClient, folder: Path) -> str:
    """What it printed."""
    known = {
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        env={**os.environ, "NO_PROXY": "*", **known},
        cwd=folder,
        stdout=PIPE,
        stderr=PIPE,
    )
    printed, complaints = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, complaints.decode()
    return printed.decode()


async def test_the_python_guide_buys_and_names_its_errors(dealer: ApiClient, tmp_path: Path):
    buying, errors, _ = texts("sdk/README.md", "python")
    lines = (await ran(buying, dealer, tmp_path)).splitlines()
    assert len(lines) == 2 and all(re.fullmatch(r"\d{18,20} LPA:1\$\S+ http://\S+", line) for line in lines)
    assert await ran(errors, dealer, tmp_path) == ""
    assert "310402" in await ran(errors.replace("my-order-2", "my-order-1"), dealer, tmp_path)  # used for two
    assert "9.99" not in await ran(errors.replace("my-order-2", "dear").replace("1.80", "9.99"), dealer, tmp_path)


async def test_the_guide_to_testing_places_one_order(dealer: ApiClient, tmp_path: Path):
    [program] = texts("docs/guides/testing.md", "python")
    assert (await ran(program, dealer, tmp_path)).splitlines() == ["True True", "310402"]


async def test_the_guide_after_the_sale_recharges_refunds_suspends_and_cancels(dealer: ApiClient, tmp_path: Path):
    program = "\n".join(texts("docs/guides/after-the-sale.md", "python"))
    assert re.sub(r"\d{18,20} ", "", await ran(program, dealer, tmp_path)).splitlines() == [
        *("TEST-OK QUEUED", "TEST-TOPUP-OK QUEUED"),
        *("credited 1.80 USD", "200003 ['TOPPED_UP']"),
        "CANCELLED",
    ]


async def test_the_receiver_of_the_python_guide_takes_what_is_sent(
    dealer: ApiClient, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(texts("sdk/README.md", "python")[2], "receive.py", "exec"), names)
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    await dealer.order()
    [event] = await receiver.received(1)
    assert names["receive"](event.headers, event.body, dealer.app_secret) == 200
    assert names["receive"](event.headers, event.body + b" ", dealer.app_secret) == 401
    assert names["receive"]({}, b"", dealer.app_secret) == 400
    names["inbox"].close()


def test_the_receiver_of_notices_tops_up_once():
    """docs/guides/receive-notices.md: its sample, given the first notice that the page shows."""
    [code], body = texts("docs/guides/receive-notices.md", "python"), texts("docs/guides/receive-notices.md", "json")[0]
    seen, topped_up = set[str](), list[tuple[str, str]]()

    def seen_before(notice_id: str) -> bool:
        return notice_id in seen or bool(seen.add(notice_id))

    names: dict[str, Any] = {"seen_before": seen_before, "top_up": lambda *given: topped_up.append(given)}
    exec(compile(code, "notices.py", "exec"), names)
    timestamp = str(int(time.time() * 1000))
    signed = signature(b"sk_test_...", timestamp.encode(), b"r-1", b"ak_test_0001", body.encode())
    headers = {"RT-Timestamp": timestamp, "RT-RequestID": "r-1", "RT-AccessCode": "ak_test_0001", "X-Signature": signed}
    assert webhook.verify_notice(headers, body.encode(), "sk_test_...").notice_type == "LOW_BALANCE"
    assert [names["receive"](headers, body.encode()) for _ in range(2)] == [200, 200]
    assert names["receive"](headers, body.encode() + b" ") == 401
    assert topped_up == [("USD", "250.00")]


# The RT family


async def test_the_call_of_the_rt_guide_is_answered_so(service: Service):
    [(_, text)] = blocks("docs/guides/rt-clients.md")
    request, answer = text.split("\n\n")
    line, body = request.split("\n", 1)
    async with service.client(await service.tenant(balance="10", qps=0, rt_face="signed")) as own:
        dealer = RtClient(own.url, own.app_key, own.app_secret, own.http)
        said = await dealer.post(line.removeprefix(f"POST {PREFIX}"), json.loads(body))
    expected = json.loads(answer)
    assert said.success is expected["success"] and said.obj.keys() == expected["obj"].keys()
    assert said.obj["transactionId"] == expected["obj"]["transactionId"]
