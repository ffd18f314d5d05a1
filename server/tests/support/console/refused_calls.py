"""Refused calls as the call log keeps them."""

import asyncio
from collections.abc import Sequence

from dealer_server.api.authenticate import read_head
from dealer_server.api.refused_calls import CallLog
from dealer_server.rules import refusal
from dealer_server.store.console import api_log as rows
from dealer_server.store.console.api_log import KEPT, CallFilter, CallRow
from support.api_client import ApiClient, Service
from support.patience import PATIENCE


async def kept(service: Service, client: ApiClient, count: int) -> Sequence[CallRow]:
    """A dealer's refused calls, newest first, once there are so many."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with service.database.connection() as connection:
                found = await rows.list_calls(connection, client.tenant_id, CallFilter(outcome="refused"), None, KEPT)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def refuse(
    log: CallLog,
    app_key: str,
    body: bytes = b"{}",
    path: bytes = b"/open-api/v1/health",
    why: refusal.Refusal | None = None,
) -> None:
    headers = [(b"rt-accesscode", app_key.encode("latin-1"))]
    scope = {"method": "POST", "raw_path": path, "query_string": b"", "headers": headers, "client": ("192.0.2.7", 1)}
    log.refused(why or refusal.SignatureMismatch(), scope, read_head(headers), body, b"trace")
