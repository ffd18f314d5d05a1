"""Does docs/architecture.md answer its ten questions with files that are there and define what it says?"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from support.paths import DOCS, ROOT, SERVER

TEXT = (DOCS / "architecture.md").read_text()
QUESTIONS = 10


class Answer(NamedTuple):
    question: str
    file: Path
    defines: tuple[str, ...]


def answers() -> list[Answer]:
    """The rows of the table of questions; a row that begins with … goes on with the question above it."""
    table = TEXT.partition("## Ten questions")[2].partition("\n## ")[0]
    found: list[Answer] = []
    for question, path, names in re.findall(r"^\| (.+?) \| `(.+?)` \| ?(.*?) ?\|$", table, re.MULTILINE):
        folder = ROOT if path.startswith(("sdk/", "docs/")) else SERVER
        found.append(Answer(question, folder / path, tuple(re.findall(r"`(\w+)`", names))))
    return found


def defined(file: Path) -> set[str]:
    """The names that a module defines, and those of its classes' methods."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def test_there_are_ten_questions():
    assert len([answer for answer in answers() if not answer.question.startswith("…")]) == QUESTIONS


@pytest.mark.parametrize("answer", answers(), ids=lambda answer: f"{answer.question} {answer.file.name}")
def test_the_file_defines_what_the_table_says(answer: Answer):
    assert answer.file.exists(), f"{answer.file} is not there"
    if answer.defines:
        assert {*answer.defines} <= defined(answer.file)


def test_every_path_of_the_description_exists():
    """Of the text above the questions; folders and files of the tree as well as those of both ways through it."""
    text = TEXT.partition("## Ten questions")[0]
    paths = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text))
    tops = (ROOT, SERVER)
    assert {path for path in paths if not any((top / path).exists() for top in tops)} == set()


def test_the_tree_shows_every_folder():
    tree = TEXT.partition("```\n")[2].partition("```")[0]
    shown = set(re.findall(r"(?:^  |   )(\w+)/", tree, re.MULTILINE))
    folders = {file.parent.name for file in SERVER.glob("*/__init__.py")}
    assert folders == shown & folders, f"not shown: {folders - shown}"


@pytest.mark.parametrize(
    "page", [DOCS / "contributing.md", *sorted((DOCS / "guides").glob("*.md"))], ids=lambda page: page.name
)
def test_every_path_of_a_guide_exists(page: Path):
    """As it is written, from one of the folders that guides name paths from. A supplier `acme` is an example."""
    paths = set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|json|sql|html))`", page.read_text()))
    tops = (ROOT, SERVER, SERVER.parent, ROOT / "sdk/src", ROOT / "sdk/src/esim_dealer", DOCS, page.parent)
    missing = {path for path in paths if not any((top / path).exists() for top in tops)}
    assert {path for path in missing if not re.search("acme|NNNN", path)} == set()
