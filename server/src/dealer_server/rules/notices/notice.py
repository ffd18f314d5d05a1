"""Who is told of a fact, and what makes it one fact?"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args

from esim_dealer.wire.vocabulary import NoticeType

OperatorNoticeType = Literal[
    "SUPPLIER_DOWN", "STOCK_LOW", "QUEUE_OLD", "TOPUP_WAITING", "REFUND_WAITING", "DEALER_LOW", "DEALER_FAILING"
]
OPERATOR_TYPES: Sequence[OperatorNoticeType] = get_args(OperatorNoticeType)
AnyNoticeType = NoticeType | OperatorNoticeType
CONFIRM_ADDRESS: Literal["CONFIRM_ADDRESS"] = "CONFIRM_ADDRESS"
"""No notice that anybody reads of: a link to an address that is not confirmed yet (operations/notices/confirm.py)."""
RESET_LINK: Literal["RESET_LINK"] = "RESET_LINK"
"""Nor this: a link to choose another password (operations/users/password_reset.py)."""
OPERATORS = 0
"""The tenant_id of notices for operators."""

ROLES: Mapping[AnyNoticeType, tuple[str, ...]] = {
    "LOW_BALANCE": ("dealer:admin", "dealer:finance"),
    "TOPUP_REVIEWED": ("dealer:admin", "dealer:finance"),
    "REFUND_REVIEWED": ("dealer:admin", "dealer:finance"),
    "RECEIVER_FAILING": ("dealer:admin", "dealer:developer"),
    "CREDENTIALS_CHANGED": ("dealer:admin", "dealer:developer"),
    "PRICE_CHANGED": ("dealer:admin", "dealer:developer", "dealer:finance"),
    "PLANS_ENDING": ("dealer:admin",),
    "SUPPLIER_DOWN": ("op:admin", "op:support"),
    "STOCK_LOW": ("op:admin", "op:support"),
    "QUEUE_OLD": ("op:admin", "op:finance", "op:support"),
    "TOPUP_WAITING": ("op:admin", "op:finance"),
    "REFUND_WAITING": ("op:admin", "op:finance", "op:support"),
    "DEALER_LOW": ("op:admin", "op:finance"),
    "DEALER_FAILING": ("op:admin", "op:support"),
}
"""Which users are told, unless they switched it off."""

MOST_MAIL_CHARACTERS = 254
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_MAIL = re.compile(
    rf"{_ATOM}(?:\.{_ATOM})*@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]{{0,61}}[A-Za-z0-9]"
)


class NewNotice(NamedTuple):
    """A fact to be told. `fact` is unique for a tenant and a type; `data` becomes JSON and holds no secret."""

    tenant_id: int
    notice_type: AnyNoticeType | Literal["CONFIRM_ADDRESS", "RESET_LINK"]
    fact: str
    data: Mapping[str, Any]


def of_dealer(notice: NewNotice, name: str) -> NewNotice | None:
    """The same for operators, of what they are told of their dealers. `name`: the dealer's, "" where not known."""
    told: Mapping[str, OperatorNoticeType] = {"LOW_BALANCE": "DEALER_LOW", "RECEIVER_FAILING": "DEALER_FAILING"}
    if notice.notice_type not in told:
        return None
    data = {"tenantId": str(notice.tenant_id), "dealer": name, **notice.data}
    return NewNotice(OPERATORS, told[notice.notice_type], f"{notice.tenant_id}:{notice.fact}", data)


class Recipient(NamedTuple):
    """A user of the console. `mail`: '' where the user has given none."""

    user_id: int
    tenant_id: int
    name: str
    full_role: str
    mail: str
    digest: bool
    off: Sequence[str]

    @property
    def address(self) -> str:
        return address(self.mail, self.name)


def types_of(full_role: str) -> list[AnyNoticeType]:
    """The notices that a role is told of."""
    return [notice_type for notice_type, roles in ROLES.items() if full_role in roles]


def is_mail_address(text: str) -> bool:
    """Plain ASCII addresses alone, so that none can be more than one recipient or line of a header."""
    return len(text) <= MOST_MAIL_CHARACTERS and _MAIL.fullmatch(text) is not None


def address(mail: str, name: str) -> str:
    """Where a user's mails go: the address given, else the name where that is one; '' for nowhere."""
    return mail or (name if is_mail_address(name) else "")


def recipients(tenant_id: int, notice_type: str, users: Iterable[Recipient]) -> list[Recipient]:
    """Those of these users who are mailed this notice."""
    roles = next((roles for known, roles in ROLES.items() if known == notice_type), ())
    return [
        user
        for user in users
        if user.tenant_id == tenant_id
        and user.full_role in roles
        and notice_type not in user.off
        and is_mail_address(user.address)
    ]


def notice_no(notice_id: int) -> str:
    """noticeId, as dealers know it."""
    return f"N{notice_id}"


def next_digest(now: datetime, hour: int) -> datetime:
    """When the digest that collects now is sent: at this hour, UTC."""
    at = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    return at if at > now else at + timedelta(days=1)
