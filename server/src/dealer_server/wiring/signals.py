"""How does one part of the service wake another when there is work?"""

import asyncio
from collections.abc import Callable, Collection


class WorkSignals:
    """Events that wake the worker's loops in the same process, and `fulfill`, which is called with the supplier of new
    order lines, with '' where that may be any. `notify` tells other processes: `notified` is called there. What
    neither tells of is noticed once it is due (due_work.py)."""

    def __init__(self) -> None:
        self.webhook = asyncio.Event()
        self.refund = asyncio.Event()
        self.lifecycle = asyncio.Event()
        self.fulfill: Callable[[str], None] = lambda supplier: None
        self.notify: Callable[[str], None] = lambda topic: None

    def order_placed(self, suppliers: Collection[str] = ("",)) -> None:
        """`suppliers`: those of its lines."""
        for supplier in suppliers:
            topic = f"order:{supplier}"
            self.notified(topic)
            self.notify(topic)

    def refund_requested(self) -> None:
        self.notified("refund")
        self.notify("refund")

    def notified(self, topic: str) -> None:
        """A topic of another version of this program is passed over."""
        kind, _, supplier = topic.partition(":")
        if kind == "order":
            self.fulfill(supplier)
            self.webhook.set()
        elif kind == "refund":
            self.refund.set()
            self.webhook.set()
