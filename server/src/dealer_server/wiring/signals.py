"""How does one part of the service wake another when there is work?"""

import asyncio
from collections.abc import Callable


class WorkSignals:
    """Events that wake the worker's loops in the same process. `notify` tells other processes: `notified` is called
    there. Whatever neither reaches is found by polling."""

    def __init__(self) -> None:
        self.fulfillment = asyncio.Event()
        self.webhook = asyncio.Event()
        self.refund = asyncio.Event()
        self.lifecycle = asyncio.Event()
        self.notify: Callable[[str], None] = lambda topic: None

    def order_placed(self) -> None:
        self.notified("order")
        self.notify("order")

    def refund_requested(self) -> None:
        self.notified("refund")
        self.notify("refund")

    def notified(self, topic: str) -> None:
        """A topic of another version of this program is passed over."""
        if topic == "order":
            self.fulfillment.set()
            self.webhook.set()
        elif topic == "refund":
            self.refund.set()
            self.webhook.set()
