"""Do the samples in the docs do what they say? Each signs the published vectors; the quickstart runs as it stands."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from esim_dealer.wire.signing import signature
from support.api_client import ApiClient
from support.paths import ROOT
from support.patience import PATIENCE

VECTORS = json.loads((ROOT / "vectors/signing.json").read_text())["vectors"]
SIGNING = (ROOT / "docs/guides/signing.md").read_text()
QUICKSTART = (ROOT / "docs/quickstart.md").read_text()

SAMPLES = dict(re.findall(r"<!-- sample: (\S+) -->\n```\w+\n(.*?)```", SIGNING, re.DOTALL))


class Language(NamedTuple):
    """How a sample is run: its file, and the words before the file's name."""

    file: str
    command: tuple[str, ...]


LANGUAGES = (
    Language("signature.sh", ("bash",)),
    Language("signature.py", ("python3",)),
    Language("signature.mjs", ("node",)),
    Language("signature.php", ("php",)),
    Language("signature.go", ("go", "run")),
    Language("Signature.java", ("java",)),
)

# A curl that says what it was given.
CURL = """\
#!/usr/bin/env bash
printf '%s\\0' "$@" >>"$SEEN"
"""
DATE = """\
#!/usr/bin/env bash
[ "$1" = +%s ] && echo 1767225600
"""


def environment(vector: dict[str, Any]) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "LC_ALL": "C.UTF-8",
        "TIMESTAMP": vector["timestamp"],
        "REQUEST_ID": vector["requestId"],
        "APP_KEY": vector["appKey"],
        "APP_SECRET": vector["appSecret"],
        "BODY": vector["body"],
    }


def test_every_sample_has_a_language_and_every_language_a_sample() -> None:
    assert {language.file for language in LANGUAGES} == set(SAMPLES)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["body"] or "empty body")
@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.command[0])
def test_the_sample_signs_as_the_vectors(language: Language, vector: dict[str, Any], tmp_path: Path) -> None:
    program, *rest = language.command
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / language.file).write_text(SAMPLES[language.file])
    ran = subprocess.run(
        [program, *rest, language.file],
        cwd=tmp_path,
        env=environment(vector) | ({"GOCACHE": str(tmp_path / "cache")} if program == "go" else {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout.strip() == vector["signature"], ran.stderr


def test_the_guide_shows_the_signature_of_its_example() -> None:
    assert f"each prints `{VECTORS[0]['signature']}`" in SIGNING
    exports = re.search(r"```sh\n(export TIMESTAMP.*?)```", SIGNING, re.DOTALL)
    assert exports
    printed = "\n".join([exports[1], SAMPLES["signature.sh"]])
    ran = subprocess.run(["bash", "-c", printed], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.strip() == VECTORS[0]["signature"]


def test_the_specification_shows_the_first_vector() -> None:
    text, vector = (ROOT / "docs/specification.md").read_text(), VECTORS[0]
    for name, value in (
        ("AppSecret", vector["appSecret"]),
        ("RT-AccessCode", vector["appKey"]),
        ("RT-RequestID", vector["requestId"]),
        ("RT-Timestamp", vector["timestamp"]),
        ("rawBody", vector["body"]),
        ("X-Signature", vector["signature"]),
    ):
        assert f"| {name} | `{value}` |" in text


# The quickstart

LISTENER = "http://127.0.0.1:9000/"


def blocks() -> list[str]:
    """What the reader pastes into bash after the `export` lines."""
    return re.findall(r"```bash\n(.*?)```", QUICKSTART, re.DOTALL)


def program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)


@pytest.mark.parametrize("body", ["{}", '{"callbackUrl":"https://dealer.example/hook","note":"é"}'])
def test_call_signs_what_it_sends(body: str, tmp_path: Path) -> None:
    program(tmp_path, "curl", CURL)
    program(tmp_path, "date", DATE)
    vector = VECTORS[0]
    subprocess.run(
        ["bash", "-c", f'{blocks()[0]}\ncall /health "$BODY"'],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "SEEN": str(tmp_path / "seen"),
            "BODY": body,
            "ESIM_DEALER_URL": "http://dealer.test",
            "ESIM_DEALER_APP_KEY": vector["appKey"],
            "ESIM_DEALER_APP_SECRET": vector["appSecret"],
        },
        timeout=30,
        check=True,
    )
    seen = (tmp_path / "seen").read_text().split("\0")
    headers = dict(value.split(": ", 1) for value in seen if ": " in value and not value.startswith("{"))
    assert seen[seen.index("--data-raw") + 1] == body
    assert "http://dealer.test/open-api/v1/health" in seen
    assert headers["RT-Timestamp"] == vector["timestamp"]
    assert re.fullmatch("[0-9a-f]{32}", headers["RT-RequestID"])
    assert headers["RT-AccessCode"] == vector["appKey"]
    assert headers["X-Signature"] == signature(
        vector["appSecret"].encode(),
        vector["timestamp"].encode(),
        headers["RT-RequestID"].encode(),
        vector["appKey"].encode(),
        body.encode(),
    )


@asynccontextmanager
async def listener(environment: Mapping[str, str]) -> AsyncIterator[tuple[str, asyncio.StreamReader]]:
    """`esim-dealer listen` on a free port: its address, and what it prints."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esim_dealer.cli",
        "listen",
        "--port",
        "0",
        env=dict(environment),
        stdout=PIPE,
        stderr=PIPE,
    )
    assert running.stdout and running.stderr
    try:
        said = await asyncio.wait_for(running.stderr.readline(), PATIENCE)
        yield said.decode().removeprefix("listening on ").strip(), running.stdout
    finally:
        running.terminate()
        await running.wait()


async def test_the_quickstart_runs_as_it_stands(dealer: ApiClient, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
        "NO_PROXY": "*",
        "XDG_STATE_HOME": str(tmp_path),
    }
    async with listener(environment) as (url, events):
        script = "\n".join(blocks())
        assert LISTENER in script
        run = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", cwd=tmp_path, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        printed, complaints = await asyncio.wait_for(run.communicate(script.replace(LISTENER, url).encode()), 60)
        assert (run.returncode, complaints) == (0, b"")
        seen = [(await asyncio.wait_for(events.readline(), PATIENCE)).decode() for _ in range(2)]
    answers = [json.loads(line) for line in printed.decode().splitlines()]
    assert {answer["code"] for answer in answers} == {"000000"}
    health, _, packages, webhook, placed, delivered, repeated, balance = (answer["data"] for answer in answers)
    assert health["status"] == "UP"
    assert packages["packages"][0]["price"] == "1.80"
    assert webhook["callbackUrl"] == url
    assert (placed["payStatus"], placed["deliveryStatus"], placed["duplicate"]) == ("PAID", "PENDING", False)
    assert delivered["deliveryStatus"] == "DELIVERED"
    assert repeated["duplicate"] is True
    assert balance["balance"] == "998.20"
    assert (tmp_path / "esim.png").read_bytes().startswith(b"\x89PNG")
    assert [("ORDER_PAID" in line, "ICCID_READY" in line) for line in seen] == [(True, False), (False, True)]
    assert all(line.strip().endswith("verified") and "not verified" not in line for line in seen)
