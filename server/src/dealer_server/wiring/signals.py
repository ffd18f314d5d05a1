"""The events by which one part of a process tells another that there is work."""

import asyncio


class WorkSignals:
    """Tells the worker's loops in the same process that there is work; in others, polling finds it."""

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
