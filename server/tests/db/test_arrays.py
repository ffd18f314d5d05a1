"""How are arrays sent? asyncpg asks the types of db/arrays.py whether an element is an array too."""

import pytest

from dealer_server.db.arrays import ARRAY_TYPES
from dealer_server.db.database import Database


class Digits(int):
    """A number that has a length and can be iterated over, as collections.abc sees it."""

    def __iter__(self):
        return iter(str(int(self)))

    def __len__(self) -> int:
        return len(str(int(self)))


@pytest.fixture
async def database(database_url: str):
    opened = await Database.open(database_url)
    yield opened
    await opened.close()


async def test_no_abstract_class_is_asked_about_elements(database: Database):
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT $1::bigint[]", [Digits(17), 4]) == [17, 4]


@pytest.mark.parametrize("kind", ARRAY_TYPES)
async def test_these_are_sent_as_arrays(database: Database, kind: type):
    async with database.connection() as connection:
        both = await connection.fetchval("SELECT $1::text[]", kind(["a", "b"]))
        assert both in (["a", "b"], ["b", "a"])
        assert await connection.fetchval("SELECT $1::bigint[]", kind()) == []


async def test_arrays_of_arrays_are_sent(database: Database):
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT $1::bigint[]", [[1, 2], [3, 4]]) == [[1, 2], [3, 4]]
