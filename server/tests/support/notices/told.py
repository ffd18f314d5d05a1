"""Notices in tests: a worker that is driven by hand, and what it left."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dealer_server import clock
from dealer_server.clock import Clock
from dealer_server.notices.looks import Limits
from dealer_server.notices.loop import NoticeWorker, Options
from dealer_server.notices.mailer import Mailer, mailer
from dealer_server.notices.message import Sender
from dealer_server.operations.users import accounts
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.settings import Settings
from dealer_server.store.tenants import data_key
from dealer_server.webhooks.outbound import Outbound
from support.api_client import Service, test_settings
from support.browser import PASSWORDS
from support.console.people import WORD
from support.notices.smtp_server import SmtpServer

FROM = "notices@esim.test"
NO_LOOKS = Limits(stock_low=0, queue_hours=0)


def with_mail(database_url: str, server: SmtpServer, **changed: object) -> Settings:
    return test_settings(
        database_url,
        **{"smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_tls": "none", "smtp_from": FROM, **changed},
    )


@asynccontextmanager
async def notice_worker(
    service: Service,
    server: SmtpServer | None = None,
    now: Clock = clock.now,
    limits: Limits = NO_LOOKS,
    **options: Any,
) -> AsyncIterator[NoticeWorker]:
    """A worker's, driven by hand. Without a mail server no mails are made."""
    by_mail: Mailer | None = None
    if server is not None:
        by_mail = mailer(with_mail(service.settings.database_url, server), service.database, now)
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
    async with Outbound(Policy(allow_loopback=True)) as outbound:
        made = NoticeWorker(
            service.database,
            limits,
            by_mail,
            Sender("eSIM Dealer", FROM, service.url),
            outbound,
            service.settings.master_keys,
            keys,
            now,
            Options(**options),
        )
        yield made
        await made.settle()
        await made.close()


async def all_told(one: NoticeWorker) -> int:
    """Looks, addresses and sends until nothing is due; how many mails and POSTs were attempted."""
    await one.look()
    while await one.address():
        pass
    total = 0
    while count := await one.run_once():
        total += count
        await one.settle()
    return total


async def user(service: Service, tenant_id: int | None, role: str, name: str) -> int:
    made = await accounts.create(service.database, PASSWORDS, tenant_id, name, role, "test", WORD)
    return made.user_id


async def rows(service: Service, sql: str, *args: object) -> Sequence[Any]:
    async with service.database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql, *args)]


async def facts(service: Service, tenant_id: int = 0) -> list[tuple[str, str]]:
    """(type, fact) of the notices, in order."""
    return [
        (row[0], row[1])
        for row in await rows(
            service, "SELECT notice_type, fact FROM notice WHERE tenant_id = $1 ORDER BY notice_id", tenant_id
        )
    ]
