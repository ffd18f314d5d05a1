"""Do the samples of docs/guides/receive-webhooks.md do what the page says?"""

import ast
import re
import threading
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

import esim_dealer
from esim_dealer.cli.__main__ import parser

from .conftest import APP_SECRET, event_body, event_headers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guides/receive-webhooks.md"
GUIDE = PAGE.read_text()
SAMPLES = dict(re.findall(r"<!-- sample: (\S+) -->\n```python\n(.*?)```", GUIDE, re.DOTALL))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[dict]:
    """The names that the first sample defines, its file in a folder of its own."""
    names: dict = {}
    with chdir(tmp_path):
        exec(compile(SAMPLES["receive.py"], "receive.py", "exec"), names)
        names["inbox"].last_received()  # opens the file
    yield names
    names["inbox"].close()


def send(program: dict, event_type: str, delivery_id: str, version: int, **options: object) -> int:
    body = event_body(event_type, refundAmount=1.80, changeHints=["ACTIVATION_CODE_READY"])
    headers = event_headers(body, delivery_id=delivery_id, version=version, **options)
    return program["receive"](headers, body, APP_SECRET)


def test_the_sample_receives_and_handles(program: dict, capsys: pytest.CaptureFixture[str]):
    assert send(program, "DELIVERY_UPDATED", "w-3", 3) == 200
    assert send(program, "DELIVERY_UPDATED", "w-2", 2) == 200
    assert send(program, "ORDER_PAID", "w-1", 1) == 200
    assert send(program, "ORDER_PAID", "w-1", 1, attempt=2) == 200
    assert send(program, "REFUND_COMPLETED", "w-4", 4) == 200
    assert send(program, "ORDER_PAID", "w-5", 1, secret="sk_test_forged") == 401
    assert program["receive"]({}, b"", APP_SECRET) == 400
    assert program["inbox"].process(program["handle"]) == 4
    assert capsys.readouterr().out.splitlines() == [
        "111: 8910300000000000017 LPA:1$smdp.test$MATCH",
        "T1 is paid",
        "T1 has 1.8 USD back",
    ]


def test_the_thread_of_the_sample_handles_what_comes(program: dict):
    came = threading.Event()
    program["handle"] = lambda _: came.set()
    exec(compile(SAMPLES["process.py"], "process.py", "exec"), program)
    assert send(program, "ORDER_PAID", "w-1", 1) == 200
    assert came.wait(10)


def test_samples_import_what_exists():
    assert set(SAMPLES) == {"receive.py", "process.py", "postgresql.py"}
    for sample in SAMPLES.values():
        imports = [node for node in ast.walk(ast.parse(sample)) if isinstance(node, ast.ImportFrom)]
        ours = [node for node in imports if node.module == "esim_dealer"]
        assert all(hasattr(esim_dealer, name.name) for node in ours for name in node.names)


@pytest.mark.parametrize("command", re.findall(r"^    esim-dealer (.+)$", GUIDE, re.MULTILINE))
def test_commands_are_understood(command: str):
    assert parser().parse_args(command.split()).run


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", GUIDE))
def test_links_lead_somewhere(link: str):
    assert (PAGE.parent / link).exists()
