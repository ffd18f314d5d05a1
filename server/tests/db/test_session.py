"""Does a session find rows by key in a table that was empty when its plans were made?"""

from dealer_server.db.arrays import batch
from dealer_server.db.session import Session

ROWS = 1_000
MARK = f"""
UPDATE grown SET marked = true FROM {batch("given", tenant_id="bigint", id="bigint")}
WHERE grown.tenant_id = given.tenant_id AND grown.id = given.id
"""


async def test_a_table_that_was_vacuumed_while_empty_is_soon_read_by_key(database_url: str):
    """PostgreSQL takes it for one row then: reading all of it costs as much as finding one."""
    session, growing = Session(database_url, {}), Session(database_url, {})
    await growing.execute(
        "CREATE TABLE grown (tenant_id bigint, id bigint, marked boolean NOT NULL DEFAULT false,"
        " PRIMARY KEY (tenant_id, id))"
    )
    await growing.execute("VACUUM ANALYZE grown")
    for _ in range(100):  # what a worker does while nothing is there
        await session.fetch(MARK, [1], [0])
    for number in range(ROWS):
        await growing.fetch("INSERT INTO grown (tenant_id, id) VALUES (1, $1)", number)
        await session.fetch(MARK, [1], [number])
    await session.fetch("SELECT pg_stat_force_next_flush()")
    [counted] = await growing.fetch("SELECT idx_tup_fetch AS rows FROM pg_stat_user_tables WHERE relname = 'grown'")
    await session.close()
    await growing.close()
    assert counted["rows"] < ROWS * ROWS / 10
