"""What does a notice URL receive? (specification 6.8)"""

from datetime import datetime
from typing import Any

import msgspec

from esim_dealer.wire.vocabulary import NoticeType


class NoticeBody(msgspec.Struct, frozen=True, rename="camel"):
    """`data` by noticeType, as the specification lists it; more types and fields may come."""

    notice_type: NoticeType
    notice_id: str
    create_time: datetime
    data: dict[str, Any]
