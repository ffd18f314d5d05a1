"""Rows become values by the names of their columns: a swapped pair lands where it belongs, any other set is refused."""

from typing import NamedTuple

import asyncpg
import msgspec
import pytest

from dealer_server.db.rows import ColumnMismatch, as_value, as_values, columns_of, fields_of


class Point(NamedTuple):
    x: int
    y: int
    label: str = ""


class Interval(msgspec.Struct, frozen=True):
    start: int
    end: int
    label: str = ""


KINDS = pytest.mark.parametrize("kind", [Point, Interval])


@pytest.fixture(scope="module")
async def connection(postgres: str):
    connection = await asyncpg.connect(postgres)
    yield connection
    await connection.close()


async def select(connection: asyncpg.Connection, **columns: int | str) -> list[asyncpg.Record]:
    return await connection.fetch("SELECT " + ", ".join(f"{value!r} AS {name}" for name, value in columns.items()))


@KINDS
async def test_columns_in_another_order_are_still_the_fields_of_their_names(
    connection: asyncpg.Connection, kind: type
) -> None:
    first, second, _ = fields_of(kind)
    in_order = await select(connection, **{first: 1, second: 2, "label": "a"})
    swapped = await select(connection, **{"label": "a", second: 2, first: 1})
    assert as_values(kind, in_order) == as_values(kind, swapped) == [kind(1, 2, "a")]


@KINDS
async def test_a_missing_column_is_refused_though_its_field_has_a_default(
    connection: asyncpg.Connection, kind: type
) -> None:
    first, second, _ = fields_of(kind)
    records = await select(connection, **{first: 1, second: 2})
    with pytest.raises(ColumnMismatch, match=kind.__name__):
        as_values(kind, records)
    assert as_value(kind, records[0], label="given") == kind(1, 2, "given")


@KINDS
async def test_a_column_that_is_no_field_is_refused(connection: asyncpg.Connection, kind: type) -> None:
    first, second, _ = fields_of(kind)
    for columns in ({first: 1, second: 2, "label": "a", "more": 3}, {first: 1, "other": 2, "label": "a"}):
        with pytest.raises(ColumnMismatch):
            as_values(kind, await select(connection, **columns))


def test_no_rows_are_no_values() -> None:
    assert as_values(Point, []) == []


def test_the_columns_of_a_select_are_the_fields_of_a_class() -> None:
    assert columns_of(Point) == "x, y, label"
    assert columns_of(Interval, "label", table="i") == "i.start, i.end"
