"""A dealer's end of the webhooks: receives on loopback and notes when; verifies as the SDK does, once all are here.

Verifying while they arrive would cost more than a quarter of what sending them costs, on the same cores.
"""

import asyncio
import re
from types import TracebackType

from bench.load.sink import OK, HttpConnection
from bench.support.calls import Dealer
from bench.support.failure import Failed
from esim_dealer import webhook

_EVENT = re.compile(rb'"eventType":"([A-Z_]+)"')
_TRANSACTION = re.compile(rb'"transactionId":"([^"]+)"')


class Receiver:
    """`arrived` holds per eventType when the first event of each transactionId was received, by time.monotonic()."""

    def __init__(self, dealers: list[Dealer]):
        self.forget()
        self.url = ""
        self._secrets = {dealer.app_key: dealer.secret.decode() for dealer in dealers}
        self._server: asyncio.Server | None = None

    def forget(self) -> None:
        """What has arrived until now does not count."""
        self.arrived: dict[str, dict[str, float]] = {"ORDER_PAID": {}, "DELIVERY_UPDATED": {}}
        self.repeated = 0
        self._kept: list[tuple[bytes, bytes]] = []

    async def __aenter__(self) -> "Receiver":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self._receive), "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/webhooks"
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def complete(self) -> int:
        """Of how many orders both events are here."""
        return min(len(times) for times in self.arrived.values())

    def verify(self) -> None:
        """Raises Failed where one of the webhooks does not verify, or says another thing than was noted."""
        for head, body in self._kept:
            headers = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:])
            try:
                event = webhook.verify(headers, body, self._secrets[headers["RT-AccessCode"]])
            except Exception as error:
                raise Failed(f"a webhook did not verify: {error!r}") from error
            if event.snapshot.transaction_id not in self.arrived[event.event_type]:
                raise Failed(f"{event.event_type} of {event.snapshot.transaction_id} was not noted")

    def _receive(self, at: float, head: bytes, body: bytes) -> bytes:
        self._kept.append((head, body))
        kind, order = _EVENT.search(body), _TRANSACTION.search(body)
        if kind and order:
            times, transaction_id = self.arrived[kind[1].decode()], order[1].decode()
            self.repeated += transaction_id in times
            times.setdefault(transaction_id, at)
        return OK
