"""SMS as a dealer sends them, and what has to be so before."""

import asyncio
import secrets
from datetime import timedelta
from typing import Any

from support.api_client import ApiClient, Reply, Service
from support.money.refunds import bought, profiles
from support.patience import PATIENCE

SMS = "/esim/profile/sms"
TEXT = "The canary's one-time code is 271828"


async def installed(dealer: ApiClient, package: str = "TEST-OK") -> dict[str, Any]:
    """A profile of the simulated network, in use."""
    profile = profiles(await bought(dealer, package))[0]
    reply = await dealer.post("/test/profile/advance", {"iccid": profile["iccid"], "step": "START"})
    assert reply.code == "000000", reply
    return reply.data


def new(profile: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A call that nobody has sent."""
    return {"transactionId": f"sms-{secrets.token_hex(8)}", "iccid": profile["iccid"], "message": TEXT} | changed


async def sent(dealer: ApiClient, call: dict[str, Any]) -> Reply:
    """The answer, once its supplier has said what became of it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            reply = await dealer.post(SMS, call)
            assert reply.code == "000000", reply
            if reply.data["status"] != "PENDING":
                return reply
            await asyncio.sleep(0.02)


async def rows(service: Service, sql: str, *args: object) -> list[tuple[Any, ...]]:
    async with service.database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql, *args)]


async def a_minute_passes(service: Service) -> None:
    """And a second more: the service measures the database's time for itself, some milliseconds apart from here."""
    await rows(service, "UPDATE sms SET created_at = $1", service.database.clock.now() - timedelta(seconds=61))


# Where the text stands in the database as it is, or in a bytea.
_EVERYWHERE = """
SELECT format('SELECT %L AS name FROM %I t WHERE strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0 LIMIT 1', relname,
    relname) AS sql FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


async def tables_with(service: Service, text: str) -> list[str]:
    """The tables in which a text can be read."""
    found = [await rows(service, sql, text, text.encode().hex()) for (sql,) in await rows(service, _EVERYWHERE)]
    return [name for hits in found for (name,) in hits]
