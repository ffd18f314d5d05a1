import ast
import re
import shlex
from pathlib import Path

import pytest

import esim_dealer
from esim_dealer import AsyncDealer, Dealer, DealerError
from esim_dealer.cli.__main__ import main

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_python_samples_are_python_and_import_what_exists():
    samples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(samples) == 3
    for sample in samples:
        imports = [node for node in ast.walk(ast.parse(sample)) if isinstance(node, ast.ImportFrom)]
        assert all(hasattr(esim_dealer, name.name) for node in imports for name in node.names)


def test_every_error_is_named():
    exported = [getattr(esim_dealer, name) for name in esim_dealer.__all__]
    errors = [each.__name__ for each in exported if isinstance(each, type) and issubclass(each, DealerError)]
    assert [name for name in errors if name not in README] == []


def test_both_clients_have_the_same_methods_and_the_readme_names_each():
    [sync, asynchronous] = [{name for name in vars(kind) if name[0] != "_"} for kind in (Dealer, AsyncDealer)]
    assert sync - {"close"} == asynchronous - {"aclose"}
    assert [name for name in sync if name not in README] == []


@pytest.mark.parametrize("command", re.findall(r"^    esim-dealer (.+)$", README, re.MULTILINE))
def test_commands_are_understood(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = shlex.split(command.replace("--port 9000", "--port 0"))
    environment = {"ESIM_DEALER_APP_SECRET": "s", "XDG_STATE_HOME": str(tmp_path)}
    assert main(arguments, environment=environment) == 1
    assert "NotConfigured" in capsys.readouterr().err
