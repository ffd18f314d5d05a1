"""Does a dealer's receiver work? One signed sample event is sent at once, and its result returned.

Nothing is stored: a test event is no delivery, and its result does not count for the circuit breaker.
"""

import time
from datetime import datetime
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import UNSET

from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import Item, Order
from dealer_server.rules.refusal import StatusForbids
from dealer_server.store.webhooks import endpoints
from dealer_server.store.webhooks import signer as webhook_signer
from dealer_server.webhooks import signature
from dealer_server.webhooks.outbound import Outbound
from esim_dealer.wire import calls, signing
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Snapshot


class TestResult(NamedTuple):
    test: calls.WebhookTest
    head: str  # the first 2 KiB of the answer


async def send(
    database: Database, master_keys: MasterKeys, outbound: Outbound, tenant_id: int, currency: str, now: datetime
) -> TestResult:
    """/webhook/test. Sends to a disabled endpoint too. Raises 200002 if no callback URL is set."""
    async with database.connection() as connection:
        endpoint = await endpoints.find(connection, tenant_id)
        signer = await webhook_signer.load(connection, tenant_id)
    if endpoint is None or not endpoint.url or signer is None:
        raise StatusForbids("no callback URL is set, so there is nowhere to send to; use /webhook/set")
    body = encoder.encode(sample(currency, now))
    standard_id = f"test-{uuid4().hex}" if endpoint.standard_headers else None
    headers = signature.headers(signer, master_keys, body, now, standard_id) | {signing.TEST: "true"}
    begun = time.monotonic()
    answer = await outbound.post(endpoint.url, body, headers, now)
    test = calls.WebhookTest(
        delivered=answer.error is None,
        http_status=UNSET if answer.status is None else answer.status,
        duration_ms=round((time.monotonic() - begun) * 1000),
        error=answer.error or UNSET,
    )
    return TestResult(test, answer.head)


def sample(currency: str, now: datetime) -> Snapshot:
    """An ORDER_PAID of an order that does not exist; its orderNo begins with TEST (specification 4.6)."""
    order_id = identity.first_id_at(int(now.timestamp())) + now.microsecond
    item = Item(
        line=0,
        package_code="TEST-OK",
        supplier="",
        quantity=1,
        period_num=1,
        price=0,
        first_profile_id=0,
        item_status="PAID",
        profiles=(),
    )
    order = Order(
        tenant_id=0,
        order_id=order_id,
        transaction_id=f"TEST-{order_id}",
        currency=currency,
        amount=money.SCALE,
        refund_amount=0,
        pay_status="PAID",
        delivery_status="PENDING",
        order_status="PAID",
        version=1,
        updated_at=now,
        items=(item,),
    )
    return msgspec.structs.replace(snapshot.order_paid(order), order_no=f"TEST{order.order_no[1:]}")
