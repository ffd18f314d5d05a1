"""A dealer that buys at a steady rate, whatever the answers take, and notes when it sent each order."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import httptools

CONNECTIONS = 64
_BEHIND_SECONDS = 2.0


class Buyer:
    """`sent` holds when the order of each transactionId was sent; `answered` how many succeeded; `refused` the rest."""

    def __init__(self, host: str, port: int):
        self.sent: dict[str, float] = {}
        self.answered = 0
        self.refused: list[int] = []
        self._at = (host, port)
        self._idle: deque[_Connection] = deque()
        self._freed = asyncio.Event()
        self._open: list[_Connection] = []

    async def __aenter__(self) -> "Buyer":
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(lambda: _Connection(self._answer), *self._at)
            self._open.append(connection)
        self._idle.extend(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._open:
            connection.transport.close()

    async def buy(self, requests: Sequence[bytes], per_second: float) -> None:
        """Sends the orders and returns when all are answered."""
        begun = time.monotonic()
        for number, request in enumerate(requests):
            early = begun + number / per_second - time.monotonic()
            if early > 0:
                await asyncio.sleep(early)
            connection = await self._connection()
            self.sent[transaction_id(request)] = time.monotonic()
            connection.transport.write(request)
        while self.answered + len(self.refused) < len(requests):
            self._freed.clear()
            await asyncio.wait_for(self._freed.wait(), _BEHIND_SECONDS)

    async def _connection(self) -> "_Connection":
        while not self._idle:
            self._freed.clear()
            await asyncio.wait_for(self._freed.wait(), _BEHIND_SECONDS)
        return self._idle.popleft()

    def _answer(self, connection: "_Connection", status: int) -> None:
        if status == 200:
            self.answered += 1
        else:
            self.refused.append(status)
        self._idle.append(connection)
        self._freed.set()


def transaction_id(request: bytes) -> str:
    return request.partition(b'"transactionId":"')[2].partition(b'"')[0].decode()


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, answer: Callable[["_Connection", int], None]):
        self._answer = answer
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._answer(self, self._parser.get_status_code())
