"""How does a new dealer come about? With a wallet, terms and a first credential."""

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys, credential_context
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants import credentials, set_terms
from dealer_server.operations.tenants.set_terms import Terms
from dealer_server.rules.money import money
from dealer_server.store.tenants import credential

DEFAULT_QPS = 10


class Created(msgspec.Struct, frozen=True, rename="camel"):
    """A new dealer. The secret is shown this once."""

    tenant_id: str
    name: str
    environment: str
    currency: str
    app_key: str
    app_secret: str


async def create_tenant(
    database: Database,
    master_keys: MasterKeys,
    environment: str,
    currency: str,
    terms: Terms,
    author: str,
    clock: Clock,
    *,
    allow_below_cost: bool = False,
) -> Created:
    """Raises OperatorError, BelowCost."""
    return await database.run(
        lambda connection: create_within(
            connection, master_keys, environment, currency, terms, author, clock, allow_below_cost=allow_below_cost
        )
    )


async def create_within(
    connection: Connection,
    master_keys: MasterKeys,
    environment: str,
    currency: str,
    terms: Terms,
    author: str,
    clock: Clock,
    *,
    allow_below_cost: bool = False,
) -> Created:
    """The same, in a transaction that is open. Raises OperatorError, BelowCost."""
    if currency not in money.EXPONENTS:
        raise OperatorError(f"{currency!r} is no ISO 4217 currency", "currency")
    name = terms.name or ""
    if not name.strip():
        raise OperatorError("a name is required", "name")
    app_key, secret = credentials.new_key(environment)
    tenant_id = await store.tenant.create(connection, name, DEFAULT_QPS)
    sealed = master_keys.seal(secret.encode(), credential_context(tenant_id, app_key, 1))
    await credential.add(connection, tenant_id, app_key, sealed, signs_webhooks=True)
    await store.wallet.create(connection, tenant_id, currency, 0)
    detail = await set_terms.apply(connection, tenant_id, currency, terms, clock, allow_below_cost)
    after = await set_terms.describe(connection, tenant_id, terms.prices)
    await record_change(connection, author, "tenant.create", tenant_id, detail, {}, after)
    return Created(
        tenant_id=str(tenant_id),
        name=name,
        environment=environment,
        currency=currency,
        app_key=app_key,
        app_secret=secret,
    )
