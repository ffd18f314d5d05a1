"""The same posts through procrastinate, an async app with a lock per order: jobs of an order run one after the other.

Tuned: jobs at once (`jobs`) and connections in its pool (`connections`). Besides: uvloop, a pool of our making
that commits by itself and does not check each connection before use, no LISTEN (all jobs are there), looking again
after 20 ms where all that is left is locked, finished jobs deleted.
"""

import sys

import procrastinate
import psycopg_pool
import uvloop
from procrastinate.jobs import Job

from bench.rivals import posting

_QUEUE = "webhooks"
_LOADED_AT_ONCE = 1_000
_LOOK_SECONDS = 0.02


async def load(dsn: str, file: str) -> None:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())
    async with _pool(dsn, 2) as pool:
        await app.open_async(pool)
        await app.schema_manager.apply_schema_async()
        jobs = [_job(post) for post in posting.read(file)]
        for at in range(0, len(jobs), _LOADED_AT_ONCE):
            await app.job_manager.batch_defer_jobs_async(jobs[at : at + _LOADED_AT_ONCE])


async def work(dsn: str, go: str, jobs: str, connections: str) -> None:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())
    async with posting.client() as session, _pool(dsn, int(connections)) as pool:

        @app.task(name="post", queue=_QUEUE)
        async def post(head: str, body: str) -> None:
            await posting.send(session, head, body.encode())

        await app.open_async(pool)
        posting.wait_for(go)
        await app.run_worker_async(
            queues=[_QUEUE],
            concurrency=int(jobs),
            fetch_job_polling_interval=_LOOK_SECONDS,
            listen_notify=False,
            delete_jobs="always",
        )


def _job(post: posting.Post) -> Job:
    return Job(
        id=None,
        queue=_QUEUE,
        lock=post.lock,
        queueing_lock=None,
        task_name="post",
        task_kwargs={"head": post.head, "body": post.body},
    )


def _pool(dsn: str, size: int) -> psycopg_pool.AsyncConnectionPool:
    return psycopg_pool.AsyncConnectionPool(dsn, min_size=size, max_size=size, open=False, kwargs={"autocommit": True})


if __name__ == "__main__":
    uvloop.run({"load": load, "work": work}[sys.argv[1]](*sys.argv[2:]))
