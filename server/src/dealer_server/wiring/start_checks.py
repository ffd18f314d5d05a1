"""Which conditions does `serve` check before it starts?"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from dealer_server import store
from dealer_server.api import listener
from dealer_server.db.polling import poll
from dealer_server.db.session import Session
from dealer_server.settings import CannotStart, Settings
from dealer_server.wiring.shared import tls_pair

HOLD_SECONDS = 1.0
log = structlog.get_logger(__name__)


def require_protection(settings: Settings) -> None:
    """In production, TLS ends here or in a trusted proxy. Raises CannotStart."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise CannotStart("DEALER_TLS_CERT and DEALER_TLS_KEY must be set together")
    if settings.environment == "production" and not settings.tls_cert and not settings.trusted_proxies:
        raise CannotStart(
            "in production serve needs TLS: set DEALER_TLS_CERT and DEALER_TLS_KEY, or DEALER_TRUSTED_PROXIES to the"
            " proxy that ends TLS in front"
        )
    if certificate_and_key := tls_pair(settings.tls_cert, settings.tls_key):
        try:
            listener.tls_context(*certificate_and_key)
        except OSError as error:  # ssl.SSLError is one
            raise CannotStart(f"DEALER_TLS_CERT and DEALER_TLS_KEY: {error.strerror or error}") from None


@asynccontextmanager
async def serve_lock(settings: Settings, share_nothing: bool) -> AsyncIterator[None]:
    """Held while `serve` runs: several on one database must share request ids and QPS, or be started not to.

    Raises CannotStart.
    """
    session, shared = Session(settings.database_url, {}), bool(settings.valkey_url) or share_nothing

    async def hold() -> None:
        # Another one may have started while this process had no connection to the database.
        if not await store.serve_lock.hold(session, shared=shared):
            log.error("another_serve_runs_on_this_database")

    try:
        embedded = await store.serve_lock.cluster_name(session) == store.serve_lock.EMBEDDED_CLUSTER
        if embedded and settings.environment == "production":
            raise CannotStart("the embedded PostgreSQL is for trials: set DATABASE_URL to a server of your own")
        if not await store.serve_lock.hold(session, shared=shared):
            raise CannotStart(
                "another serve runs on this database: set DEALER_VALKEY_URL for both, so that they share request ids"
                " and QPS, or start each with --share-nothing"
            )
        holding = asyncio.create_task(poll(HOLD_SECONDS, hold))
        try:
            yield
        finally:
            holding.cancel()
            await asyncio.wait([holding])
    finally:
        await session.close()
