"""Does one SQL text reach drivers of every paramstyle, and does a broken connection come back?"""

import sqlite3

import pytest

from esim_dealer.inbox.dbapi import Database, bind, paramstyle_of

TEXT = "SELECT :b, :a, :b"
VALUES = {"a": 1, "b": 2, "unused": 3}


@pytest.mark.parametrize(
    ("paramstyle", "text", "values"),
    [
        ("named", "SELECT :b, :a, :b", {"a": 1, "b": 2}),
        ("pyformat", "SELECT %(b)s, %(a)s, %(b)s", {"a": 1, "b": 2}),
        ("qmark", "SELECT ?, ?, ?", [2, 1, 2]),
        ("format", "SELECT %s, %s, %s", [2, 1, 2]),
        ("numeric", "SELECT :1, :2, :3", [2, 1, 2]),
    ],
)
def test_values_are_bound_in_the_manner_of_the_driver(paramstyle: str, text: str, values: object):
    assert bind(TEXT, VALUES, paramstyle) == (text, values)


def test_another_paramstyle_is_refused():
    with pytest.raises(ValueError, match="PEP 249"):
        bind(TEXT, VALUES, "dollar")


def test_a_connection_tells_the_paramstyle_of_its_module():
    connection = sqlite3.connect(":memory:")
    assert paramstyle_of(connection) == "qmark"
    connection.close()


def test_a_connection_that_does_not_tell_has_to_be_named():
    with pytest.raises(ValueError, match="paramstyle="):
        paramstyle_of(object())


def test_what_raises_is_rolled_back():
    database = Database(lambda: sqlite3.connect(":memory:"), None)
    with database.transaction() as sql:
        sql.change("CREATE TABLE t (a INTEGER)")
    with pytest.raises(ZeroDivisionError), database.transaction() as sql:
        sql.change("INSERT INTO t (a) VALUES (:a)", a=1)
        1 / 0  # noqa: B018
    with database.transaction() as sql:
        assert sql.rows("SELECT a FROM t") == []


def test_after_a_connection_broke_another_is_opened():
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(":memory:"))
        return opened[-1]

    database = Database(connect, None)
    with database.transaction() as sql:
        assert sql.rows("SELECT 1 AS one") == [{"one": 1}]
    opened[0].close()
    with pytest.raises(sqlite3.ProgrammingError), database.transaction() as sql:
        sql.rows("SELECT 1")
    with database.transaction() as sql:
        assert sql.rows("SELECT 1 AS one") == [{"one": 1}]
    assert len(opened) == 2
