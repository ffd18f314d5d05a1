"""How does one part of a process wake another when there is work?"""

import asyncio


class WorkSignals:
    """Events that wake the worker's loops in the same process at once; in other processes polling finds the work."""

    def __init__(self) -> None:
        self.fulfillment = asyncio.Event()
        self.webhook = asyncio.Event()
        self.refund = asyncio.Event()
        self.lifecycle = asyncio.Event()

    def refund_requested(self) -> None:
        self.refund.set()
        self.webhook.set()

    def order_placed(self) -> None:
        self.fulfillment.set()
        self.webhook.set()
