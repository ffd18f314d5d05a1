"""How often may somebody try a password or a code? Attempts are counted before they are checked (specification 8).

They are counted in windows of 15 minutes by subject: a hash of a name, a browser, a user or an address.
"""

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.store.console import user as user_store

WINDOW = timedelta(minutes=15)
ATTEMPTS_PER_NAME = 10  # in a window
ATTEMPTS_PER_ADDRESS = 50
MAX_DELAY_SECONDS = 4.0
log = structlog.get_logger(__name__)


class TooManyTries(Exception):
    """The next attempt is accepted in `seconds`."""

    def __init__(self, seconds: int):
        self.seconds = seconds
        super().__init__("too many attempts")


def subject(kind: str, text: str) -> bytes:
    """What attempts are counted by."""
    return hashlib.sha256(f"{kind}|{text}".encode()).digest()


def address_subject(address: str) -> bytes:
    """An IPv6 network of 64 bits counts as one address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return subject("address", address)
    network = ipaddress.ip_network(f"{address}/64", strict=False) if parsed.version == 6 else parsed
    return subject("address", str(network))


async def count(
    database: Database, counted: bytes, address: str | None, now: datetime, limit: int = ATTEMPTS_PER_NAME
) -> None:
    """Counts one attempt of a subject and, where given, of an address. Raises TooManyTries."""
    limits = {counted: limit} | ({} if address is None else {address_subject(address): ATTEMPTS_PER_ADDRESS})
    await count_all(database, list(limits), limits, address, now)


async def count_all(
    database: Database, subjects: Sequence[bytes], limits: Mapping[bytes, int], address: str | None, now: datetime
) -> dict[bytes, int]:
    """Counts one attempt of each subject; gives their counts. Raises TooManyTries where one is over its limit."""
    async with database.connection() as connection:
        counts = await user_store.count_tries(connection, subjects, WINDOW, now)
    ends = [since + WINDOW for key, (tries, since) in counts.items() if key in limits and tries > limits[key]]
    if ends:
        log.warning("console_tries_throttled", address=address)
        raise TooManyTries(max(1, round((max(ends) - now).total_seconds())))
    return {key: tries for key, (tries, _) in counts.items()}


async def forgive(connection: Connection, counted: bytes, address: str) -> None:
    """After a success: the subject's attempts are deleted, and one attempt of the address."""
    await user_store.forgive(connection, counted)
    await user_store.take_back(connection, address_subject(address))


def delay_seconds(tries: int) -> float:
    """How long a sign-in waits, by how often its name was tried within the window from all addresses."""
    over = tries - ATTEMPTS_PER_NAME
    return 0.0 if over <= 0 else min(0.25 * 2 ** min((over - 1) // 10, 10), MAX_DELAY_SECONDS)
