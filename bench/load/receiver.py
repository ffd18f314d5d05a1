"""A dealer's end of the webhooks: receives on loopback, verifies as the SDK does, notes when."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import cast

import httptools

from bench.support.calls import Dealer
from esim_dealer import webhook

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Receiver:
    """`arrived` holds per eventType when the first event of each transactionId was received and verified."""

    def __init__(self, dealers: list[Dealer]):
        self.forget()
        self.refused: list[str] = []
        self.url = ""
        self._secrets = {dealer.app_key.encode(): dealer.secret.decode() for dealer in dealers}
        self._server: asyncio.Server | None = None

    def forget(self) -> None:
        """What has arrived until now does not count."""
        self.arrived: dict[str, dict[str, float]] = {"ORDER_PAID": {}, "DELIVERY_UPDATED": {}}
        self.repeated = 0

    async def __aenter__(self) -> "Receiver":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._receive), "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/webhooks"
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def complete(self) -> int:
        """Of how many orders both events are here."""
        return min(len(times) for times in self.arrived.values())

    def _receive(self, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
        try:
            event = webhook.verify(headers, body, self._secrets[dict(headers)[b"rt-accesscode"]])
        except Exception as error:
            self.refused.append(repr(error))
            return b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
        times, transaction_id = self.arrived[event.event_type], event.snapshot.transaction_id
        if transaction_id in times:
            self.repeated += 1
        else:
            times[transaction_id] = time.perf_counter()
        return _ANSWER


class _Connection(asyncio.Protocol):
    def __init__(self, receive: Callable[[list[tuple[bytes, bytes]], bytes], bytes]):
        self._receive = receive
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._headers, self._body = [], []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._transport.write(self._receive(self._headers, b"".join(self._body)))
