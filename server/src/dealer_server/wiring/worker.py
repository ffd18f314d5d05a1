"""The worker's loops, joined. They meet the API in rows only; any number of workers may run on one database."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from dealer_server.api import listener, supplier_events
from dealer_server.fulfillment import lifecycle_tracker
from dealer_server.fulfillment.builtin.fulfiller import Fulfiller
from dealer_server.fulfillment.engine import Context
from dealer_server.fulfillment.health_monitor import HealthMonitor
from dealer_server.fulfillment.lifecycle_tracker import LifecycleTracker, PollingSource
from dealer_server.fulfillment.purchases.purchaser import Purchaser, PurchaseTerms
from dealer_server.fulfillment.refund_settler import RefundSettler
from dealer_server.fulfillment.sms_queue import SmsQueue
from dealer_server.fulfillment.supervisor import SupplierLoop, SupplierSupervisor
from dealer_server.fulfillment.supplier_event_handler import SupplierEventHandler
from dealer_server.fulfillment.suspension_queue import SuspensionQueue
from dealer_server.fulfillment.void_queue import VoidQueue, queues
from dealer_server.notices.buyer.worker import BuyerMailWorker
from dealer_server.notices.looks import Limits
from dealer_server.notices.loop import NoticeWorker
from dealer_server.notices.loop import Options as NoticeOptions
from dealer_server.notices.mailer import Mailer, mailer
from dealer_server.notices.message import sender_of
from dealer_server.operations.overview.count_hours import HourCounter
from dealer_server.operations.reports.fold import ReportFolder
from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.operations.search.collect import SearchCollector
from dealer_server.settings import CannotStart
from dealer_server.store.suppliers.supplier import Supplier as SupplierRow
from dealer_server.suppliers.contract import Builtin, Remote
from dealer_server.webhooks.loop import Deliverer, Options
from dealer_server.webhooks.outbound import Outbound
from dealer_server.webhooks.post import Poster
from dealer_server.webhooks.prepare import Preparer
from dealer_server.webhooks.resend import Resender
from dealer_server.webhooks.rt_validity import RtValidity
from dealer_server.wiring.due_work import DueWorkPoller
from dealer_server.wiring.shared import SharedParts, callback_policy, suppliers_of, tls_pair

log = structlog.get_logger(__name__)


async def run(shared: SharedParts, events: socket.socket | None) -> None:
    """The worker's loops, until cancelled. `events`: where suppliers' messages come in, if they do."""
    settings, signals, clock = shared.settings, shared.signals, shared.clock
    policy = callback_policy(settings)
    suppliers = suppliers_of(shared)
    settler = RefundSettler(shared.database, shared.data_keys, shared.links, clock.now, signals.webhook.set)
    fulfiller = fulfiller_of(shared, suppliers)
    signals.fulfill = fulfiller.wake
    voids = queues(shared.database, suppliers, shared.data_keys, clock.now, signals.webhook.set, settler.wake.set)
    sources = [supplier.reports for supplier in suppliers.values() if supplier.reports is not None]
    trackers = lifecycle_tracker.trackers(
        shared.database, sources, shared.data_keys, clock.now, signals.webhook.set, settings.usage_interval
    )
    supervisor = supervisor_of(shared, settler.wake.set)
    async with Outbound(policy) as outbound:
        notifier = notice_worker_of(shared, outbound)
        resender = Resender(shared.database, clock.now, signals.webhook)
        buyer_mails = buyer_mail_worker_of(shared)
        poller = DueWorkPoller(
            shared.database,
            clock.now,
            lambda: [*fulfiller.engines, *voids, *trackers, *supervisor.running_loops()],
            {
                "refunds": settler.wake,
                "webhooks": signals.webhook,
                "resends": resender.wake,
                "buyer_mails": buyer_mails.wake,
                "notices": notifier.wake,
            },
        )
        await _run_all(
            poller.run(),
            fulfiller.run(),
            deliverer_of(shared, outbound).run(),
            resender.run(),
            RtValidity(shared.database, shared.data_keys, clock.now, signals.webhook).run(),
            notifier.run(),
            buyer_mails.run(),
            Sweeper(shared.database, clock.now, settings.retention).run(),
            HourCounter(shared.database, clock.now).run(),
            ReportFolder(shared.database).run(),
            SearchCollector(shared.database, clock.now).run(),
            settler.run(),
            *(queue.run() for queue in voids),
            supervisor.run(),
            *([serve_supplier_events(shared, supervisor, events)] if events else []),
            *(tracker.run() for tracker in trackers),
            _forward(signals.refund, [settler.wake.set, *(queue.wake.set for queue in voids), supervisor.wake]),
            _forward(signals.lifecycle, [supervisor.wake, *(tracker.wake.set for tracker in trackers)]),
        )


def fulfiller_of(shared: SharedParts, suppliers: Mapping[str, Builtin]) -> Fulfiller:
    """What fulfills the order lines of built-in suppliers."""
    settings, signals = shared.settings, shared.signals
    return Fulfiller(
        database=shared.database,
        suppliers=suppliers,
        data_keys=shared.data_keys,
        package=lambda code: shared.cache.catalogue.package(code),
        clock=shared.clock.now,
        changed=signals.webhook.set,
        refund_failed=settings.refund_failed,
        settle=signals.refund_requested,
    )


def deliverer_of(shared: SharedParts, outbound: Outbound) -> Deliverer:
    """What POSTs webhooks to dealers."""
    settings, clock = shared.settings, shared.clock
    return Deliverer(
        shared.database,
        Preparer(shared.data_keys, shared.links),
        Poster(outbound, settings.master_keys, clock.now),
        clock.now,
        shared.signals.webhook,
        Options(schedule=settings.schedule),
    )


def notice_worker_of(shared: SharedParts, outbound: Outbound) -> NoticeWorker:
    """What tells of notices, by mail and at notice URLs. Raises CannotStart."""
    database, clock, settings = shared.database, shared.clock, shared.settings
    return NoticeWorker(
        database,
        Limits(settings.stock_low, settings.queue_hours),
        _mailer(shared),
        sender_of(settings),
        outbound,
        settings.master_keys,
        shared.data_keys,
        clock.now,
        NoticeOptions(schedule=settings.schedule, digest_hour=settings.digest_hour),
    )


def buyer_mail_worker_of(shared: SharedParts) -> BuyerMailWorker:
    """What mails the pages of eSIMs to their buyers. Raises CannotStart."""
    database, clock, settings = shared.database, shared.clock, shared.settings
    return BuyerMailWorker(
        database, shared.data_keys, shared.links, _mailer(shared), sender_of(settings), clock.now, settings.schedule
    )


def _mailer(shared: SharedParts) -> Mailer | None:
    """Raises CannotStart."""
    try:
        return mailer(shared.settings, shared.database, shared.clock.now)
    except OSError as error:  # ssl.SSLError is one
        raise CannotStart(f"DEALER_SMTP_CA: {error.strerror or error}") from None


def supervisor_of(shared: SharedParts, settle: Callable[[], None]) -> SupplierSupervisor:
    """The loops of every remote supplier. One that an operator paused is asked nothing; from one that a worker paused
    nothing new is bought."""
    database, signals, clock, settings = shared.database, shared.signals, shared.clock, shared.settings

    def loops(remote: Remote, supplier: SupplierRow) -> list[SupplierLoop]:
        if supplier.status != "ACTIVE" and supplier.paused_reason is None:
            return []
        purchaser = Purchaser(
            remote,
            Context(
                database.session(),
                shared.data_keys,
                lambda code: shared.cache.catalogue.package(code),
                clock.now,
                signals.webhook.set,
                settings.refund_failed,
                signals.refund_requested,
            ),
            PurchaseTerms(settings.supplier_patience_seconds, settings.margin_floor_basis_points),
            supplier.paused_reason,
        )
        suspensions = SuspensionQueue(remote, database.session(), shared.data_keys, clock.now, signals.webhook.set)
        return [
            purchaser,
            HealthMonitor(database, remote, clock.now, purchaser.answers_again),
            LifecycleTracker(
                PollingSource(remote),
                database.session(),
                shared.data_keys,
                clock.now,
                signals.webhook.set,
                usage_interval=settings.usage_interval,
            ),
            VoidQueue(remote, database.session(), shared.data_keys, clock.now, signals.webhook.set, settle),
            *([suspensions] if remote.caps.suspend else []),
            *([SmsQueue(remote, database.session(), shared.data_keys, clock.now)] if remote.caps.sms else []),
        ]

    return SupplierSupervisor(database, shared.data_keys, loops)


async def serve_supplier_events(shared: SharedParts, supervisor: SupplierSupervisor, events: socket.socket) -> None:
    """Serves suppliers' messages, until cancelled."""
    settings, clock = shared.settings, shared.clock

    def source_of(code: str) -> supplier_events.EventSource | None:
        running = supervisor.get(code)
        return None if running is None else supplier_events.EventSource(running.remote, running.supplier.event_token)

    handler = SupplierEventHandler(
        shared.database.session(),
        shared.data_keys,
        clock.now,
        shared.signals.webhook.set,
        supervisor.wake,
        settings.usage_interval,
    )
    try:
        await listener.server(
            supplier_events.app(source_of, handler.handle, clock.now),
            tls=tls_pair(settings.supplier_events_cert, settings.supplier_events_key),
            client_ca=settings.supplier_events_ca,
        ).serve(sockets=[events])
    finally:
        await handler.close()


async def _forward(signal: asyncio.Event, others: Sequence[Callable[[], None]]) -> None:
    """Passes a signal on, for ever."""
    while True:
        await signal.wait()
        signal.clear()
        for notify in others:
            notify()


async def _run_all(*loops: Coroutine[Any, Any, None]) -> None:
    """Runs the loops until cancelled; a loop that breaks ends them all, so that the process is restarted whole."""
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop)
