"""Do names say what the field says, and are rows read by the names of their columns?"""

import ast
import re
from collections.abc import Iterator

from support.paths import ROOT

PRIVATE = {  # a word of ours: what the field calls it
    "basket": "priced lines",
    "bell": "work signal, notify",
    "desk": "batcher",
    "door": "API client, console app, listener",
    "follower": "lifecycle tracker",
    "ground": "service",
    "killpoint": "failpoint",
    "missigned": "signature diagnosis",
    "pulse": "health monitor",
    "remotes": "supplier supervisor",
    "repush": "resend",
    "shelf": "catalogue",
    "shop": "service, dealers",
    "sighting": "profile report",
    "sourcing": "supplier setup",
    "wakes": "work signals",
}
CLASSES = {"Asked", "Books", "Entered", "Go", "Heard", "Here", "Made", "Maker", "Said", "Visit"}
TABLES = {"webhook_repush"}  # the database keeps its names
ROWS = {"row", "record"}
TOPS = ("sdk/src", "sdk/tests", "server/src", "server/tests", "bench")


def trees(*tops: str) -> Iterator[tuple[str, ast.Module]]:
    for top in tops:
        for file in sorted((ROOT / top).rglob("*.py")):
            if ".venv" not in file.parts:
                yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text())


def identifiers(tree: ast.Module) -> Iterator[str]:
    """The names that a module makes: of classes, functions, parameters, variables, fields."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.alias() if node.asname:
                yield node.asname


def words(identifier: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def private(identifier: str) -> bool:
    """A test's name is a sentence; its words are free."""
    if identifier in TABLES or identifier.startswith("test_"):
        return False
    return identifier in CLASSES or not PRIVATE.keys().isdisjoint(words(identifier))


def by_position(tree: ast.Module) -> Iterator[int]:
    """The lines in which a row's value is read by its position."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Await(value=read) | read, slice=ast.Constant(value=int())):
                row = isinstance(read, ast.Name) and read.id in ROWS
                if row or (isinstance(read, ast.Call) and getattr(read.func, "attr", None) == "fetchrow"):
                    yield node.lineno


def test_no_private_word_stands_as_a_name():
    found = []
    for file, tree in trees(*TOPS):
        found += [f"{file}: {name}" for name in sorted({*identifiers(tree)}) if private(name)]
        found += [file] if private(file.rpartition("/")[2].removesuffix(".py")) else []
    assert not found, "\n".join(found)


def test_no_value_of_a_row_is_read_by_its_position():
    found = [f"{file}:{line}" for file, tree in trees("sdk/src", "server/src") for line in by_position(tree)]
    assert not found, "\n".join(found)


def test_a_private_word_and_a_position_are_found():
    tree = ast.parse("class OrderDesk:\n    def ring(self, wakes): self._shelf = row[3]\n")
    assert [name for name in identifiers(tree) if private(name)] == ["OrderDesk", "wakes", "_shelf"]
    assert [*by_position(tree)] == [2]
