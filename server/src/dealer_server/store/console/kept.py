"""What a user of the console keeps: filters of lists under a name, and a form that was not sent."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection


class SavedView(NamedTuple):
    """`query`: the list's filters as they stand in its address."""

    view_id: int
    name: str
    query: str


async def views(connection: Connection, user_id: int, path: str) -> list[SavedView]:
    """The user's views of a list, in the order of their names."""
    rows = await connection.fetch(
        "SELECT view_id, name, query FROM console_view WHERE user_id = $1 AND path = $2 ORDER BY lower(name), name",
        user_id,
        path,
    )
    return [SavedView(**row) for row in rows]


async def save_view(connection: Connection, user_id: int, path: str, name: str, query: str, most: int) -> bool:
    """A view of this name is replaced. False where the user has `most` views of the list."""
    done = await connection.execute(
        "INSERT INTO console_view (user_id, path, name, query) SELECT $1, $2, $3, $4"
        " WHERE (SELECT count(*) FROM console_view WHERE user_id = $1 AND path = $2 AND name <> $3) < $5"
        " ON CONFLICT (user_id, path, name) DO UPDATE SET query = EXCLUDED.query",
        user_id,
        path,
        name,
        query,
        most,
    )
    return done == "INSERT 0 1"


async def rename_view(connection: Connection, user_id: int, view_id: int, name: str) -> bool | None:
    """False where another view of the list has the name; None where there is no such view of this user."""
    row = await connection.fetchrow(
        "SELECT EXISTS (SELECT FROM console_view o WHERE o.user_id = v.user_id AND o.path = v.path AND o.name = $3"
        "  AND o.view_id <> v.view_id) AS taken FROM console_view v WHERE user_id = $1 AND view_id = $2",
        user_id,
        view_id,
        name,
    )
    if row is None or row["taken"]:
        return None if row is None else False
    await connection.execute(
        "UPDATE console_view SET name = $3 WHERE user_id = $1 AND view_id = $2", user_id, view_id, name
    )
    return True


async def delete_view(connection: Connection, user_id: int, view_id: int) -> bool:
    done = await connection.execute("DELETE FROM console_view WHERE user_id = $1 AND view_id = $2", user_id, view_id)
    return done == "DELETE 1"


MOST_FORMS = 20
"""Of one user; beyond them the oldest go."""


async def keep_form(
    connection: Connection, user_id: int, page: str, sealed: bytes, now: datetime, until: datetime
) -> None:
    """`page`: the path of the page that shows it again."""
    await connection.execute(
        "DELETE FROM console_unsent_form WHERE user_id = $1 AND (until <= $2 OR form_id IN"
        " (SELECT form_id FROM console_unsent_form WHERE user_id = $1 ORDER BY form_id DESC OFFSET $3))",
        user_id,
        now,
        MOST_FORMS - 1,
    )
    await connection.execute(
        "INSERT INTO console_unsent_form (user_id, page, sealed, until) VALUES ($1, $2, $3, $4)",
        user_id,
        page,
        sealed,
        until,
    )


async def take_form(connection: Connection, user_id: int, page: str, now: datetime) -> bytes | None:
    """The oldest of this page; it is there once."""
    return await connection.fetchval(
        "DELETE FROM console_unsent_form WHERE form_id = (SELECT form_id FROM console_unsent_form WHERE user_id = $1"
        " AND page = $2 AND until > $3 ORDER BY form_id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING sealed",
        user_id,
        page,
        now,
    )
