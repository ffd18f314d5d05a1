"""From where were a dealer's AppKeys used, and whom would a new allowlist shut out?"""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from dealer_server.console.shared.request_context import RequestContext
from dealer_server.rules import dates
from dealer_server.rules.access import allowlist
from dealer_server.store.tenants import credential
from dealer_server.store.tenants.credential import Use

RECENT = timedelta(days=7)


def newest(uses: Iterable[Use]) -> dict[str, Use]:
    """The last use of each AppKey; `uses`: the newest first."""
    last: dict[str, Use] = {}
    for use in uses:
        last.setdefault(use.app_key, use)
    return last


async def shut_out(
    context: RequestContext, tenant_id: int, allowed: Sequence[str], app_key: str | None = None
) -> list[tuple[str, str]]:
    """(address, what comes from it) of those that could call no more: this browser's, and those of the calls of the
    last days. `app_key`: of this AppKey alone. Raises ValueError for an entry that is no address."""
    parsed = allowlist.parse(allowed)
    async with context.parts.database.connection() as connection:
        uses = await credential.uses_of_tenant(connection, tenant_id)
    calls = {
        use.address: f"last call {dates.minute(use.used_at)}"
        for use in reversed(uses)
        if use.used_at > context.now - RECENT and app_key in (None, use.app_key)
    }
    known = {context.address: "you read this page from here"} | calls
    return [(address, known[address]) for address in allowlist.shut_out(known, parsed)]
