"""Order lines sold from a Remote become purchases: one for each of their units, to be asked for one by one."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment import purchase_decision, record
from dealer_server.fulfillment.supplier_calls import fault_text, unit_key
from dealer_server.store.orders import fulfillment as lines
from dealer_server.store.orders.fulfillment import Claimed, Scheduled
from dealer_server.store.suppliers import purchase as rows
from dealer_server.store.suppliers.purchase import Hop, New

log = structlog.get_logger()

LINES_PER_BATCH, PROFILES_PER_BATCH = 200, 1_000
LEASE_SECONDS = 60.0
LOCKED_SECONDS = 1.0


class Planner:
    """Plans on its purchaser's connection."""

    def __init__(self, supplier: str, session: Session, data_keys: DataKeys, clock: Clock, changed: Callable[[], None]):
        self._supplier = supplier
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._changed = changed

    async def plan(self) -> int:
        """Plans what is due; how many lines. A line that cannot be planned harms no other, and comes due again."""
        claim_id, now = secrets.randbits(62), self._clock()
        until = now + timedelta(seconds=LEASE_SECONDS)
        due = await lines.claim(
            self._session, self._supplier, claim_id, now, until, LINES_PER_BATCH, PROFILES_PER_BATCH
        )
        if due:
            failpoints.hit("purchase.lines_claimed")
            if not await self._planned(claim_id, due) and len(due) > 1:
                for line in due:
                    await self._planned(claim_id, [line])
        return len(due)

    async def _planned(self, claim_id: int, due: Sequence[Claimed]) -> bool:
        try:
            await self._plan(claim_id, due)
        except DatabaseLost:
            raise
        except LockTimeout:
            if len(due) == 1:
                await self._try_soon(claim_id, due[0])
            return False
        except Exception as error:
            log.error("lines_not_planned", supplier=self._supplier, lines=len(due), error=fault_text(error))
            return False
        return True

    async def _try_soon(self, claim_id: int, line: Claimed) -> None:
        """Another transaction holds a row of it; it does not wait for its lease to run out."""
        until = self._clock() + timedelta(seconds=LOCKED_SECONDS)
        log.warning("line_waits_for_a_lock", supplier=self._supplier, tenant_id=line.tenant_id, order_id=line.order_id)
        with suppress(LockTimeout):
            await lines.reschedule(self._session, claim_id, [Scheduled(line.key, until, False)])

    async def _plan(self, claim_id: int, due: Sequence[Claimed]) -> None:
        session, now = self._session, self._clock()
        keys = sorted({(line.tenant_id, line.order_id) for line in due})
        async with session.transaction():
            await store.order.lock(session, keys)
            held = await lines.held(session, claim_id, [line.key for line in due])
            before = await store.order.load(session, keys, self._data_keys)
            mine = [line for line in due if line.key in held]
            begun = {key: frozenset(line.line for line in mine if line.key[:2] == key) for key in keys}
            after = await record.put(session, before, {}, begun, self._data_keys, refund_failed=False, now=now)
            routes = await rows.routes(session, sorted({line.package_code for line in mine}))
            if new := self._units(mine, routes):
                await rows.add(session, new, now)
            await lines.reschedule(session, claim_id, [Scheduled(line.key, None, True) for line in mine])
        if any(after[key] is not before[key] for key in keys):
            self._changed()

    def _units(self, mine: Sequence[Claimed], routes: Mapping[str, Sequence[Hop]]) -> list[New]:
        return [
            purchase_decision.first_purchase(
                (line.tenant_id, profile_id),
                line.order_id,
                line.line,
                unit_key(line.order_id, line.line, profile_id - line.first_profile_id + 1),
                self._supplier,
                line.package_code,
                routes.get(line.package_code, ()),
            )
            for line in mine
            for profile_id in line.pending
        ]
