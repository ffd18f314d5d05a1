"""How does an operator set up a new dealer? Dealer, prices and first user in one transaction: nothing is half made.

What is filled in meanwhile is kept as a draft, which any operator can finish or discard.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys
from dealer_server.operations.errors import OperatorError, renamed
from dealer_server.operations.tenants import brand, create, parsing
from dealer_server.operations.tenants.assign_price_list import assign_within
from dealer_server.operations.tenants.brand import BrandChange
from dealer_server.operations.tenants.create import Created
from dealer_server.operations.tenants.set_terms import Terms
from dealer_server.operations.users import invitations
from dealer_server.operations.users.invitations import Invited
from dealer_server.store.tenants import dealer_draft
from dealer_server.store.tenants.dealer_draft import Draft


class NewDealer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a new dealer needs. `price_list_id`: in place of a markup of its own. `invite`: the mail address
    of its first user, "" for none yet. `allow_below_cost`: also prices below the cost."""

    currency: str
    terms: Terms
    price_list_id: int | None = None
    brand: BrandChange = BrandChange()
    invite: str = ""
    role: str = "admin"
    allow_below_cost: bool = False


class Onboarded(NamedTuple):
    """`invited` None: nobody was."""

    created: Created
    invited: Invited | None


class _Rehearsed(Exception):
    """Takes a rehearsal back."""


async def onboard(
    database: Database,
    master_keys: MasterKeys,
    environment: str,
    new: NewDealer,
    author: str,
    clock: Clock,
    draft_id: int | None = None,
) -> Onboarded:
    """Creates all of it, or nothing; the draft is gone then. Of two at once with one draft, one creates it. Raises
    OperatorError, which names the field, BelowCost."""

    async def work(connection: Connection) -> Onboarded:
        if draft_id is not None and not await dealer_draft.delete(connection, draft_id):
            raise OperatorError("this dealer was created or discarded meanwhile")
        return await _create(connection, master_keys, environment, new, author, clock)

    return await database.run(work)


async def rehearse(
    database: Database, master_keys: MasterKeys, environment: str, new: NewDealer, author: str, clock: Clock
) -> None:
    """Whether it could be created, by the same rules; nothing is kept. Raises OperatorError, which names the field,
    BelowCost."""

    async def work(connection: Connection) -> None:
        await _create(connection, master_keys, environment, new, author, clock)
        raise _Rehearsed

    try:
        await database.run(work)
    except _Rehearsed:
        return


async def _create(
    connection: Connection, master_keys: MasterKeys, environment: str, new: NewDealer, author: str, clock: Clock
) -> Onboarded:
    with renamed(package="prices", price="prices"):
        created = await create.create_within(
            connection,
            master_keys,
            environment,
            new.currency,
            new.terms,
            author,
            clock,
            allow_below_cost=new.allow_below_cost,
        )
    tenant_id = int(created.tenant_id)
    if new.price_list_id is not None:
        if new.terms.markup is not None and parsing.basis_points(new.terms.markup):
            raise OperatorError("a dealer with a price list has no markup of its own: leave it empty", "markup")
        # It is told of no change: its prices have been these from the start.
        await assign_within(connection, tenant_id, new.price_list_id, author, clock, told=False)
    if new.brand != BrandChange():
        with renamed(name="brand_name"):
            await brand.set_brand_within(connection, tenant_id, new.brand, author)
    invited = None
    if new.invite:
        invited = await invitations.invite_within(connection, tenant_id, new.invite, new.role, author, clock())
    return Onboarded(created, invited)


async def keep_draft(
    database: Database, draft_id: int | None, fields: Mapping[str, str], author: str, now: datetime
) -> int:
    """Keeps what was filled in; its draftId. Raises OperatorError where the draft is gone."""

    async def work(connection: Connection) -> int:
        if draft_id is None:
            return await dealer_draft.create(connection, author, fields, now)
        if not await dealer_draft.update(connection, draft_id, fields, now):
            raise OperatorError("this dealer was created or discarded meanwhile")
        return draft_id

    return await database.run(work)


async def find_draft(database: Database, draft_id: int) -> Draft | None:
    async with database.connection() as connection:
        return await dealer_draft.find(connection, draft_id)


async def list_drafts(database: Database) -> list[Draft]:
    """The newest first."""
    async with database.connection() as connection:
        return await dealer_draft.listed(connection)


async def discard_draft(database: Database, draft_id: int) -> None:
    await database.run(lambda connection: dealer_draft.delete(connection, draft_id))
