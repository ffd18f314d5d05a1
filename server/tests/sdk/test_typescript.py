"""The TypeScript SDK: complete beside the Python one, and run against the real service where it is built.

`make typescript-test` builds it and runs its own tests too.
"""

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from dealer_server.api.openapi import schemas
from dealer_server.api.routes import ROUTES
from esim_dealer import Dealer, errors
from esim_dealer.wire import operations
from support.api_client import ApiClient
from support.paths import DOCS, ROOT
from support.patience import PATIENCE

SDK = ROOT / "sdk-typescript"
RENEW = "run `make typescript-types`"
needs_node = pytest.mark.skipif(not shutil.which("node"), reason="there is no node here, by which it is made")
RUNTIMES = {"node": ("node",), "deno": ("deno", "run", "--allow-all"), "bun": ("bun",)}


@needs_node
def test_it_has_each_operation_and_field_of_the_contract() -> None:
    api = (SDK / "src/api.ts").read_text()
    assert [each.path for each in operations.OPERATIONS if f'"{each.path}": {{' not in api] == [], RENEW
    _, *parts = re.split(r"^ {8}(\w+): ", api, flags=re.MULTILINE)
    types = dict(zip(parts[::2], parts[1::2], strict=True))
    for name, schema in schemas.schemas(ROUTES).items():
        assert name in types, RENEW
        assert [
            field for field in schema["properties"] if not re.search(rf"^ +{field}\??:", types[name], re.MULTILINE)
        ] == [], RENEW


@needs_node
def test_it_has_the_methods_and_errors_of_the_python_sdk() -> None:
    source = (SDK / "src/dealer.ts").read_text()
    methods = set(re.findall(r"^  (?:async )?([a-z]\w+)(?:<.*?>)?\(", source, re.MULTILINE)) - {"constructor"}
    python = {re.sub(r"_(.)", lambda match: match[1].upper(), name) for name in vars(Dealer) if name[0] != "_"}
    assert methods == python - {"close", "lastResponse"}  # of connections, of threads and tasks
    source = (SDK / "src/errors.ts").read_text()
    classes = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert set(re.findall(r"^export class (\w+)", source, re.MULTILINE)) == classes - {"ClientClosed"} | {
        "InvalidValue"
    }
    for code, kind in errors.CLASS_OF_CODE.items():
        assert re.search(rf'\[{kind.__name__}, "[\d ]*{code}[\d ]*"\]', source), code


async def test_the_samples_of_the_guide_run(dealer: ApiClient, tmp_path: Path) -> None:
    """Those of docs/guides/typescript.md that are programs; the compiler checks all of them (tests/guide.mjs)."""
    if not shutil.which("node") or not (SDK / "dist/index.js").exists():
        pytest.skip("there is no node here, or sdk-typescript is not built: make typescript-test")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/esim-dealer").symlink_to(SDK)
    samples = re.findall(r"^```ts\n(.*?)^```$", (DOCS / "guides/typescript.md").read_text(), re.MULTILINE | re.DOTALL)
    printed: list[str] = []
    used_before = samples[2].replace("my-order-2", "my-order-1")
    for sample in (*samples[:3], used_before):
        (tmp_path / "sample.mjs").write_text(sample)
        running = await asyncio.create_subprocess_exec(
            "node", "sample.mjs", env=known(dealer), cwd=tmp_path, stdout=-1, stderr=-1
        )
        out, err = await asyncio.wait_for(running.communicate(), PATIENCE)
        assert running.returncode == 0, err.decode()
        printed.append(out.decode())
    bought, listed, silent, refused = printed
    assert len(re.findall(r"^\d{18,20} LPA:1\$\S+ http://\S+$", bought, re.MULTILINE)) == 2
    assert re.search(r"^\S+ \d+\.\d\d$", listed, re.MULTILINE)
    assert silent == "" and "310402" in refused  # the transactionId was used for two


def known(dealer: ApiClient) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
    }


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_it_buys_waits_refunds_and_verifies(runtime: str, dealer: ApiClient) -> None:
    if not shutil.which(runtime):
        pytest.skip(f"there is no {runtime} here")
    if not (SDK / "dist/index.js").exists():
        pytest.skip("sdk-typescript is not built: make typescript-test")
    running = await asyncio.create_subprocess_exec(
        *RUNTIMES[runtime], str(SDK / "tests/life.mjs"), env=known(dealer), stdout=-1, stderr=-1
    )
    out, err = await asyncio.wait_for(running.communicate(), PATIENCE)
    assert running.returncode == 0, err.decode()
    came = json.loads(out)
    events = came.pop("events")
    assert came == {
        "status": "UP",
        "dear": "1.80",
        "amount": "3.60",
        "duplicate": [False, True],
        "iccids": 2,
        "refund": ["REFUNDED", "3.60"],
        "unknown": "310272",
        "entries": ["REFUND", "ORDER_PAY", "ADJUST"],
    }
    assert {event["type"] for event in events} == {"ORDER_PAID", "DELIVERY_UPDATED", "REFUND_COMPLETED"}
    assert all(event["forged"] for event in events)
    [credited] = [event for event in events if event["type"] == "REFUND_COMPLETED"]
    assert credited["refundAmount"] == "3.60"
