"""The same posts through pgqueuer: jobs are taken in batches and their ends recorded in batches.

Tuned: jobs per batch (`batch`; twice as many may run at once, the least that it allows) and queue managers in the
process (`managers`), each on an asyncpg connection of its own. Besides: uvloop, logged tables (its default, "durable"),
no statistics added up meanwhile.
"""

import asyncio
import sys
from datetime import timedelta

import aiohttp
import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.rivals import posting

_LOADED_AT_ONCE = 1_000


async def load(dsn: str, file: str) -> None:
    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    payloads = [f"{post.head}\n{post.body}".encode() for post in posting.read(file)]
    for at in range(0, len(payloads), _LOADED_AT_ONCE):
        part = payloads[at : at + _LOADED_AT_ONCE]
        await queries.enqueue(["post"] * len(part), part, [0] * len(part))
    await connection.close()


async def work(dsn: str, go: str, batch: str, managers: str) -> None:
    connections = [await asyncpg.connect(dsn) for _ in range(int(managers))]
    async with posting.client() as session:
        queuers = [_queuer(connection, session) for connection in connections]
        posting.wait_for(go)
        await asyncio.gather(*[_run(queuer, int(batch)) for queuer in queuers])


def _queuer(connection: asyncpg.Connection, session: aiohttp.ClientSession) -> PgQueuer:
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("post")
    async def post(job: Job) -> None:
        head, _, body = (job.payload or b"").partition(b"\n")
        await posting.send(session, head, body)

    return queuer


async def _run(queuer: PgQueuer, batch: int) -> None:
    await queuer.qm.run(batch_size=batch, max_concurrent_tasks=2 * batch, log_aggregation_interval=timedelta(0))


if __name__ == "__main__":
    uvloop.run({"load": load, "work": work}[sys.argv[1]](*sys.argv[2:]))
