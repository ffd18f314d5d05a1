"""A dealer whose wallet is locked by another session, and who goes on ordering: what do the others notice?"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from bench.cases.suite import Bench, target_of
from bench.support import calls
from bench.support.calls import Dealer
from bench.support.failure import Failed
from bench.support.measure import Load

CONNECTIONS = 8
ORDERS = 2_000  # each waits for the lock until it is answered 900001, so these last for any run


@contextmanager
def wallet(dsn: str, dealer: Dealer, address: str) -> Iterator[None]:
    """Locks the dealer's wallet and keeps orders of it in flight. Raises Failed where one of them is not answered."""
    locked, ended, faults = threading.Event(), threading.Event(), list[Exception]()

    def run() -> None:
        try:
            asyncio.run(_lock_and_order(dsn, dealer, address, locked, ended))
        except Exception as error:
            faults.append(error)
            locked.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        locked.wait()
        yield
    finally:
        ended.set()
        thread.join()
    if faults:
        raise Failed(f"the dealer whose wallet is locked: {faults[0]!r}")


async def _lock_and_order(
    dsn: str, dealer: Dealer, address: str, locked: threading.Event, ended: threading.Event
) -> None:
    requests = iter(calls.in_memory(calls.orders([dealer]), ORDERS))
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT FROM wallet WHERE tenant_id = {dealer.tenant_id} FOR UPDATE")
            locked.set()
            await asyncio.gather(*[_order(address, requests, ended) for _ in range(CONNECTIONS)])
    finally:
        await connection.close()


async def _order(address: str, requests: Iterator[bytes], ended: threading.Event) -> None:
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while not ended.is_set():
        writer.write(next(requests))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 503 " not in head.partition(b"\r\n")[0]:
            raise Failed(f"answered {head!r}")
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    writer.close()


def run(bench: Bench) -> None:
    """What other dealers' orders take while one dealer's wallet is locked by somebody else and its orders wait."""
    blocked, *others = bench.instance.dealers
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        with bench.instance.serve(database) as served:
            target = target_of(served)
            quiet, beside = (
                Load(
                    f"orders.{key}",
                    f"order, {len(others)} dealers, 64 connections, {title}",
                    64,
                    lambda: calls.orders(others),
                    writes=True,
                )
                for key, title in (("quiet", "no lock"), ("locked", "the wallet of one more is locked"))
            )
            bench.measure(quiet, target)
            with wallet(bench.instance.dsn(database), blocked, target.address):
                bench.measure(beside, target)
        bench.instance.drop(database)
