"""Is every folder and every function of a size that one can survey?"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.paths import ROOT, SDK, SERVER

MOST_FILES = 20
MOST_LINES = 50
GROWING = {"server/src/dealer_server/store/schema": "one file for each migration"}
SUFFIXES = {".py", ".sql", ".lua"}
SKIPPED = {"vendor", "static", "__pycache__", ".venv", "results"}


def code() -> Iterator[Path]:
    for top in ("sdk", "server", "bench", "examples", "scripts"):
        for file in (ROOT / top).rglob("*"):
            if file.suffix in SUFFIXES and not SKIPPED & set(file.relative_to(ROOT).parts):
                yield file.relative_to(ROOT)


def test_no_folder_holds_more_than_twenty_files():
    counted = Counter(file.parent.as_posix() for file in code())
    full = {name: count for name, count in counted.items() if count > MOST_FILES and name not in GROWING}
    assert not full, (
        f"more than {MOST_FILES} files: put the new one into a subfolder, or what it holds beside its kin: {full}"
    )


def test_no_function_is_longer_than_fifty_lines():
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}"
        for top in (SDK, SERVER)
        for file in sorted(top.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES
    ]
    assert not long, "\n".join(long)
