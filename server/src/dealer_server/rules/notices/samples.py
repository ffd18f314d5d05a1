"""What does each notice look like? A made-up one of each kind, to be shown and to be mailed as a test."""

from collections.abc import Mapping
from typing import Any

from dealer_server.rules.notices.notice import AnyNoticeType
from dealer_server.rules.notices.texts import Text, text_of

_AT = "2026-11-29T06:46:00Z"
_LOW = {"currency": "USD", "balance": "48.20", "availableBalance": "48.20", "below": "50.00"}
_FAILING = {"callbackUrl": "https://example.com/webhooks", "state": "FAILING", "failuresInARow": 20}
_PLAN = {"profileId": "100000001", "iccid": "8944000000000001234", "packageCode": "FR-3GB-30D"}
SAMPLES: Mapping[AnyNoticeType, Mapping[str, Any]] = {
    "LOW_BALANCE": _LOW,
    "TOPUP_REVIEWED": {
        "amount": "500.00",
        "currency": "USD",
        "status": "APPROVED",
        "topupNo": "T100000001",
        "transactionId": "top-1",
        "balance": "548.20",
    },
    "REFUND_REVIEWED": {
        "refundNo": "R100000001",
        "orderNo": "D100000001",
        "status": "REJECTED",
        "currency": "USD",
        "amount": "4.20",
        "rejectReason": "the eSIM was used",
    },
    "RECEIVER_FAILING": _FAILING,
    "CREDENTIALS_CHANGED": {"appKey": "ak_test_1", "name": "Web shop", "change": "RESET", "previousUntil": _AT},
    "PRICE_CHANGED": {
        "count": 1,
        "currency": "USD",
        "packages": [
            {"packageCode": "FR-3GB-30D", "packageName": "France 3 GB 30 days", "before": "2.42", "after": "2.20"}
        ],
    },
    "PLANS_ENDING": {"count": 1, "date": "2026-11-30", "plans": [_PLAN | {"planUseEndTime": "2026-11-30T14:00:00Z"}]},
    "SUPPLIER_DOWN": {"supplier": "rt:example", "reason": "DOWN", "detail": "no response within 10 s", "since": _AT},
    "STOCK_LOW": {"packageCode": "FR-3GB-30D", "packageName": "France 3 GB 30 days", "free": 3, "below": 10},
    "QUEUE_OLD": {"queue": "REFUNDS", "count": 4, "hours": 24.0, "oldestTime": _AT},
    "TOPUP_WAITING": {"count": 1, "oldestTime": _AT},
    "REFUND_WAITING": {"count": 1, "oldestTime": _AT},
    "DEALER_LOW": _LOW | {"tenantId": "10001", "dealer": "Example Travel"},
    "DEALER_FAILING": _FAILING | {"tenantId": "10001", "dealer": ""},
}


def sample(notice_type: AnyNoticeType) -> Text:
    return text_of(notice_type, SAMPLES[notice_type])
