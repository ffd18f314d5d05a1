"""Does SQL stand in store/ and db/ only?"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.paths import SERVER

STATEMENT = re.compile(
    r"\s*(?:(?:SELECT|DELETE FROM|INSERT INTO|TRUNCATE|LISTEN|NOTIFY|CREATE|ALTER|DROP|WITH|COPY) [\w\"(*$]"
    r"|UPDATE \w+ SET\b)"
)
SENDS_SQL = {"fetch", "fetchrow", "fetchval", "fetchmany", "execute", "executemany", "prepare", "cursor"}
EXCEPTIONS = {
    "dev/embedded/postgres.py": "names the database before there is a connection",
}


def texts(node: ast.AST) -> Iterator[str]:
    """The constant parts of a string, in their order."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each string that is sent to a connection or reads like a statement: its line and how it begins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SENDS_SQL:
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant | ast.JoinedStr) and (text := "".join(texts(argument))):
                    yield node.lineno, text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value):
            yield node.lineno, node.value


def faults(file: Path) -> list[str]:
    name = file.relative_to(SERVER).as_posix()
    if name.startswith(("store/", "db/")) or name in EXCEPTIONS:
        return []
    tree = ast.parse(file.read_text())
    return [f"{name}:{line}: {text.strip()[:60]}" for line, text in sorted(set(statements(tree)))]


def test_no_sql_stands_outside_store_and_db():
    found = [fault for file in sorted(SERVER.rglob("*.py")) for fault in faults(file)]
    assert not found, "\n".join(found)


def test_every_exception_is_still_needed():
    for name in EXCEPTIONS:
        assert [*statements(ast.parse((SERVER / name).read_text()))], f"{name} holds no SQL any more"


def test_a_statement_is_found_wherever_it_stands():
    code = "async def load(connection):\n    await connection.execute(f'VACUUM {table}')\n    sql = 'SELECT 1'\n"
    assert {text for _, text in statements(ast.parse(code))} == {"VACUUM ", "SELECT 1"}
