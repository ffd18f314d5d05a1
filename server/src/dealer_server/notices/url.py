"""How is a notice posted to a dealer's notice URL? Signed as webhooks are; its bytes are the same on every attempt."""

import time
from datetime import datetime
from typing import Any

from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.notices.notice import notice_no
from dealer_server.rules.orders.snapshot import whole_seconds
from dealer_server.store.notices import recipients
from dealer_server.store.notices.outbox import Notice
from dealer_server.store.webhooks import signer as webhook_signer
from dealer_server.store.webhooks.signer import Signer
from dealer_server.webhooks import signature
from dealer_server.webhooks.outbound import Answer, Outbound
from esim_dealer.wire import signing
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.notices import NoticeBody


class Tested:
    """What the receiver answered to a test, and after how many milliseconds."""

    def __init__(self, answer: Answer, duration_ms: int):
        self.answer = answer
        self.duration_ms = duration_ms


def body(notice: Notice) -> bytes:
    return _body(notice.notice_type, notice_no(notice.notice_id), notice.created_at, notice.data)


def headers(
    signer: Signer, keys: MasterKeys, notice_id: str, attempt: int, raw: bytes, now: datetime
) -> dict[str, str]:
    signed = signature.headers(signer, keys, raw, now)
    return signed | {signing.DELIVERY_ID: notice_id, signing.DELIVERY_ATTEMPT: str(attempt)}


async def send_test(database: Database, keys: MasterKeys, outbound: Outbound, tenant_id: int, now: datetime) -> Tested:
    """Sends one notice of the type TEST at once; nothing is stored. Raises OperatorError where there is no URL."""
    async with database.connection() as connection:
        url = await recipients.url(connection, tenant_id)
        signer = await webhook_signer.load(connection, tenant_id)
    if not url or signer is None:
        raise OperatorError("no notice URL is set, so there is nowhere to send to")
    raw = _body("TEST", "N0", now, {"text": "This is a test. Nothing has happened."})
    begun = time.monotonic()
    signed = headers(signer, keys, "N0", 1, raw, now) | {signing.TEST: "true"}
    answer = await outbound.post(url, raw, signed, now)
    return Tested(answer, round((time.monotonic() - begun) * 1000))


def _body(notice_type: Any, notice_id: str, created_at: datetime, data: dict[str, Any]) -> bytes:
    return encoder.encode(NoticeBody(notice_type, notice_id, whole_seconds(created_at), data))
