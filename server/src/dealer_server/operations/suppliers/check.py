"""Does a supplier answer, and does it know us? It is asked for its health alone: nothing is bought."""

import asyncio

from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.suppliers.describe import load_supplier, open_remote
from dealer_server.suppliers.contract import Health, Remote
from dealer_server.suppliers.registry import BadSettings

CHECK_SECONDS = 15.0
_ADVICE = {
    "101001": "Its clock and ours differ: set the clock of this machine by NTP.",
    "101002": "It knows us, but not this address: ask it to allow the address that our calls come from.",
    "101003": "It does not accept our signature: compare the access code or AppKey, and fill the secret in again.",
    "refuses connections": "Nothing listens at that address and port: compare the base URL.",
    "is not found": "The name in the base URL does not exist: compare it with what the supplier gave you.",
    "certificate is not trusted": "Compare the base URL: that host shows a certificate of somebody else.",
    "do not trust": "Its certificate is signed by another authority than the one that is set.",
    "does not accept our certificate": "Give it our certificate, or set the one that it knows.",
    "no connection in time": "A firewall may stand between: ask the supplier whether our address is let in.",
    "no answer in": "It took the question and was silent: try again, then ask the supplier.",
}


async def check_health(database: Database, keys: DataKeys, code: str, seconds: float = CHECK_SECONDS) -> Health:
    """Asks a supplier how it is, now; one that does not answer in time is down. Raises OperatorError."""
    async with database.connection() as connection:
        supplier = await load_supplier(connection, keys, code)
    try:
        remote = open_remote(supplier)
    except BadSettings as error:  # set by another release
        return Health(False, str(error))
    try:
        return await _asked(remote, seconds)
    finally:
        await remote.close()


async def _asked(remote: Remote, seconds: float) -> Health:
    try:
        async with asyncio.timeout(seconds):
            return await remote.health()
    except TimeoutError:
        return Health(False, f"no answer in {seconds:g} seconds")
    except Exception as error:  # what no supplier should do must not end as an error of ours
        return Health(False, f"the check broke off: {type(error).__name__}")


def advice(health: Health) -> str:
    """What to do about a supplier that is down, where its words tell; else ""."""
    return "" if health.up else next((text for words, text in _ADVICE.items() if words in health.detail), "")
