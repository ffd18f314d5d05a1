"""The samples of examples/languages: each signs the vectors, buys from the real service, verifies webhooks.

Run by `make samples-test`; a sample whose language is not installed here is skipped.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from esim_dealer.wire.signing import signature
from support.api_client import ApiClient
from support.paths import DOCS, ROOT
from support.patience import PATIENCE

pytestmark = pytest.mark.samples

FOLDER = ROOT / "examples/languages"
COMPILER = ROOT / "sdk-typescript/node_modules/.bin/tsc"
VECTORS = json.loads((ROOT / "vectors/signing.json").read_text())["vectors"]
BODY = '{"eventType":"ORDER_PAID","orderNo":"D1","remark":"é"}'.encode()


class Language(NamedTuple):
    """Where its sample is, how it is compiled into a folder `{out}`, and how it is run there."""

    file: str
    build: tuple[str, ...]
    run: tuple[str, ...]


LANGUAGES = {
    "python": Language("dealer.py", (), ("python3", "{file}")),
    "typescript": Language(
        "dealer.mts",
        (
            str(COMPILER),
            "--outDir",
            "{out}",
            *("--target", "es2022"),
            *("--module", "nodenext"),
            *("--strict", "--noCheck", "{file}"),
        ),
        ("node", "{out}/dealer.mjs"),
    ),
    "go": Language("dealer.go", ("go", "build", "-o", "{out}/dealer", "{file}"), ("{out}/dealer",)),
    "php": Language("dealer.php", (), ("php", "{file}")),
    "java": Language("Dealer.java", ("javac", "-d", "{out}", "{file}"), ("java", "-cp", "{out}", "Dealer")),
    "csharp": Language(
        "Dealer.cs", ("mcs", "-r:System.Net.Http", "-out:{out}/dealer.exe", "{file}"), ("mono", "{out}/dealer.exe")
    ),
    "ruby": Language("dealer.rb", (), ("ruby", "{file}")),
    "curl": Language("dealer.sh", (), ("bash", "{file}")),
}


class Sample(NamedTuple):
    """A sample, ready to run."""

    command: list[str]
    folder: Path

    async def run(self, *words: str, body: bytes = b"", **environment: str) -> tuple[int, str, str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8", **environment}
        running = await asyncio.create_subprocess_exec(*self.command, *words, env=env, stdin=-1, stdout=-1, stderr=-1)
        out, err = await asyncio.wait_for(running.communicate(body), PATIENCE)
        assert running.returncode is not None
        return running.returncode, out.decode(), err.decode()


@pytest.fixture(scope="module", params=LANGUAGES)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    language, out = LANGUAGES[request.param], tmp_path_factory.mktemp(request.param)
    for program in (*language.build[:1], language.run[0]):
        if "{" not in program and not shutil.which(program):
            from_npm = ": `make typescript-test` installs it" if program.endswith("tsc") else ""
            pytest.skip(f"there is no {Path(program).name} here{from_npm}")
    names = {"file": str(FOLDER / request.param / language.file), "out": str(out)}
    build, run = ([word.format(**names) for word in words] for words in (language.build, language.run))
    if build:
        env = os.environ | {"GOCACHE": str(out / "cache"), "GO111MODULE": "off"}
        subprocess.run(build, check=True, env=env, cwd=out)
    return Sample(run, out)


async def test_it_signs_as_the_vectors(sample: Sample) -> None:
    for vector in VECTORS:
        status, out, err = await sample.run(
            "sign",
            body=vector["body"].encode(),
            ESIM_DEALER_APP_KEY=vector["appKey"],
            ESIM_DEALER_APP_SECRET=vector["appSecret"],
            TIMESTAMP=vector["timestamp"],
            REQUEST_ID=vector["requestId"],
        )
        assert (status, out.strip()) == (0, vector["signature"]), err


async def test_it_buys(sample: Sample, dealer: ApiClient) -> None:
    known = {
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
    }
    status, out, err = await sample.run("order", "TEST-OK", "1.80", **known)
    assert status == 0, err
    assert re.fullmatch(r"D\d+ \d{18,20} LPA:1\$\S+\n", out), out
    status, _, err = await sample.run("order", "TEST-OK", "9.99", **known)
    assert status != 0 and "200005" in err
    assert (await dealer.post("/account/balance")).data["balance"] == "998.20"


@pytest.mark.parametrize("words", [(), ("ordr", "TEST-OK", "1.80"), ("order", "TEST-OK")])
async def test_it_says_how_it_is_used(sample: Sample, words: tuple[str, ...]) -> None:
    known = {"ESIM_DEALER_APP_KEY": "k", "ESIM_DEALER_APP_SECRET": "s", "ESIM_DEALER_URL": "http://127.0.0.1:9"}
    status, out, err = await sample.run(*words, **known)
    assert (status, out) == (2, "") and "order PACKAGE PRICE | sign | verify" in err


async def test_it_verifies(sample: Sample) -> None:
    secret, now = "sk_test_0001", int(time.time() * 1000)

    async def verified(body: bytes = BODY, age_seconds: int = 0, **changed: str) -> bool:
        timestamp = str(now - age_seconds * 1000)
        signed = signature(secret.encode(), timestamp.encode(), b"r-1", b"ak_test_0001", BODY)
        headers = {"TIMESTAMP": timestamp, "REQUESTID": "r-1", "ACCESSCODE": "ak_test_0001"}
        environment = {f"HTTP_RT_{name}": value for name, value in headers.items()} | {"HTTP_X_SIGNATURE": signed}
        if "previous" in changed:
            environment |= {"HTTP_X_SIGNATURE": changed.pop("previous"), "HTTP_X_SIGNATURE_PREVIOUS": signed}
        known = {"ESIM_DEALER_APP_KEY": "ak_test_0001", "ESIM_DEALER_APP_SECRET": secret}
        given = {name: value for name, value in (environment | known | changed).items() if value}
        status, out, err = await sample.run("verify", body=body, **given)
        assert status in (0, 1) and ("not verified" in out + err) == bool(status), err
        return status == 0

    assert await verified()
    assert await verified(previous="0" * 64)
    assert not await verified(body=BODY + b" ")
    assert not await verified(HTTP_RT_REQUESTID="r-2")
    assert not await verified(HTTP_X_SIGNATURE="", HTTP_RT_TIMESTAMP="", HTTP_RT_ACCESSCODE="")
    assert not await verified(HTTP_X_SIGNATURE="0" * 64)
    assert not await verified(HTTP_X_SIGNATURE="é" * 64)
    assert not await verified(HTTP_RT_TIMESTAMP="x" * 13)
    assert not await verified(age_seconds=400)
    assert not await verified(age_seconds=-400)


def test_the_guide_lists_each_language() -> None:
    page = (DOCS / "guides/other-languages.md").read_text()
    assert {folder.name for folder in FOLDER.iterdir()} == set(LANGUAGES)
    assert [
        name for name, language in LANGUAGES.items() if f"examples/languages/{name}/{language.file}" not in page
    ] == []
