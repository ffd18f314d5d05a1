"""What does an RT-* reseller API answer?

Its implementations differ in details: `success` is a boolean or "true", the message is errorMsg or errorMessage, times
end in Z or +0000, a list may come without its wrapper.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from dealer_server.rules.lifecycle.report import Report

T = TypeVar("T")
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,64}$")]
VOID = ("CANCEL", "REVOKE", "REVOKED")
_NOT_STARTED, _USED_UP = "GOT_RESOURCE", "USED_UP"
_NO_ERROR = ("", "0", "000000")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


class RtAnswer(msgspec.Struct, frozen=True):
    """An answer that was understood. `code` is "" for a success, else six digits; `obj` what came with it."""

    code: str
    message: str = ""
    obj: Any = None

    @property
    def words(self) -> str:
        """For the operator."""
        return f"{self.code or 'success'} {self.message}".strip()


class RtProfile(msgspec.Struct, frozen=True, rename="camel"):
    """An eSIM as esim/query lists it. `ac` is the whole activation code; both it and the ICCID may come later."""

    order_no: str
    transaction_id: str | None = None
    esim_tran_no: str | None = None
    iccid: str | None = None
    ac: str | None = None
    esim_status: str | None = None
    smdp_status: str | None = None
    eid: str | None = None
    activate_time: str | None = None
    expired_time: str | None = None
    total_volume: int | None = None
    total_duration: int | None = None
    order_usage: int | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        return self.order_no, self.esim_tran_no, self.iccid

    @property
    def is_void(self) -> bool:
        return self.esim_status in VOID

    @property
    def is_suspended(self) -> bool:
        return self.esim_status == "SUSPENDED"

    @property
    def is_refundable(self) -> bool:
        """Whether the supplier cancels it and gives the money back."""
        return self.esim_status == "GOT_RESOURCE" and self.smdp_status == "RELEASED"

    @property
    def plan_ends_at(self) -> datetime | None:
        """None before its first use: `expiredTime` is then when it expires unused."""
        return time_of(self.expired_time) if self.is_started else None

    @property
    def is_started(self) -> bool:
        return self.esim_status not in (None, _NOT_STARTED)


class RtUsage(msgspec.Struct, frozen=True, rename="camel"):
    """What an eSIM has used, by esim/usage/query, in bytes."""

    esim_tran_no: str
    data_usage: int
    total_data: int | None = None


class _Envelope(msgspec.Struct, rename="camel"):
    success: bool | str | int | None = None
    error_code: str | int | None = None
    error_msg: str | None = None
    error_message: str | None = None
    obj: Any = None


class _Page(msgspec.Struct, rename="camel"):
    esim_list: list[RtProfile] | None = None


class Balance(msgspec.Struct, frozen=True, rename="camel"):
    """What is left of our money there, in ten-thousandths."""

    balance: int
    currency_code: str = "USD"


class _Priced(msgspec.Struct, rename="camel"):
    package_code: str
    price: Annotated[int, Meta(gt=0)]
    currency_code: str = "USD"


class _PriceList(msgspec.Struct, rename="camel"):
    package_list: list[_Priced] | None = None


class About(msgspec.Struct, frozen=True, rename="camel"):
    """Which eSIM a message is about. ORDER_STATUS may name the order alone."""

    order_no: Name | None = None
    transaction_id: Name | None = None
    esim_tran_no: Name | None = None
    iccid: Name | None = None


class Notice(msgspec.Struct, frozen=True, rename="camel"):
    """A message of the supplier. `notify_id` is the same for one that comes twice."""

    notify_type: Annotated[str, Meta(pattern=r"^[A-Z_]{1,40}$")]
    notify_id: str | None = None
    content: About = About()


class _Ordered(msgspec.Struct, rename="camel"):
    order_no: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class _ToppedUp(msgspec.Struct, rename="camel"):
    expired_time: str | None = None


class _UsagePage(msgspec.Struct, rename="camel"):
    esim_usage_list: list[RtUsage] | None = None


_envelope = msgspec.json.Decoder(_Envelope)
_notice = msgspec.json.Decoder(Notice)


def read(body: bytes) -> RtAnswer:
    """The envelope {success, errorCode, errorMsg|errorMessage, obj}. Raises ValueError where it is neither a success
    nor a failure."""
    envelope = _decoded(_envelope, body)
    succeeded = envelope.success is True or str(envelope.success).lower() == "true"
    code = "" if envelope.error_code is None else str(envelope.error_code)
    if succeeded == (code not in _NO_ERROR):
        raise ValueError(f"neither a success nor a failure: errorCode {_line(code, 20)!r}")
    if succeeded:
        return RtAnswer("", obj=envelope.obj)
    return RtAnswer(_line(code, 20), _line(envelope.error_msg or envelope.error_message or "", 160))


def order_no(obj: Any) -> str:
    """The number in an answer to esim/order. Raises ValueError."""
    return _taken(obj, _Ordered).order_no


def recharged_until(obj: Any) -> datetime | None:
    """When an eSIM expires, by an answer to esim/topup; None where it does not say."""
    try:
        return time_of(_taken(obj, _ToppedUp).expired_time)
    except ValueError:
        return None


def profiles(obj: Any) -> list[RtProfile]:
    """The eSIMs in an answer to esim/query. Raises ValueError."""
    return _taken(obj, _Page).esim_list or []


def usages(obj: Any) -> list[RtUsage]:
    """The figures in an answer to esim/usage/query. Raises ValueError."""
    if isinstance(obj, list):
        return _taken(obj, list[RtUsage])
    return _taken(obj, _UsagePage).esim_usage_list or []


def balance(obj: Any) -> Balance:
    """The balance in an answer to balance/query. Raises ValueError."""
    return _taken(obj, Balance)


def price(obj: Any, package_code: str, currency: str | None) -> int | None:
    """The price of a package in an answer to package/list, if it is listed in that currency. Raises ValueError."""
    listed = _taken(obj, _PriceList).package_list or []
    return next(
        (
            package.price
            for package in listed
            if (package.package_code, package.currency_code) == (package_code, currency)
        ),
        None,
    )


def notice(body: bytes) -> Notice:
    """Raises ValueError."""
    return _decoded(_notice, body)


def sole(found: Sequence[RtProfile]) -> RtProfile | None:
    """The one eSIM of an order of one; None where there is none yet. Raises ValueError where there are more."""
    if len(found) > 1:
        raise ValueError(f"{len(found)} eSIMs for an order of one")
    return found[0] if found else None


def time_of(text: str | None) -> datetime | None:
    """2025-03-19T18:00:00+0000 or …Z, without a zone UTC; None for what is no time."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def time_text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")


def report(profile: RtProfile, usage: RtUsage | None, now: datetime, *, recharged: bool = False) -> Report:
    """A report on an eSIM, with the supplier's raw words.

    Its usage is the higher of two figures, as both only grow. `recharged`: the word USED_UP may be of the time before,
    until the figures say so too.
    """
    used = _highest(profile.order_usage, usage.data_usage if usage else None)
    total = profile.total_volume or (usage.total_data if usage else None)
    late = recharged and profile.esim_status == _USED_UP and (used or 0) < (total or 0)
    return Report(
        at=now,
        smdp_status=profile.smdp_status or None,
        esim_status=None if late else profile.esim_status or None,
        eid=profile.eid or None,
        data_usage_bytes=used,
        data_total_bytes=total,
        plan_started_at=time_of(profile.activate_time) if profile.is_started else None,
        plan_ends_at=profile.plan_ends_at,
    )


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ValueError("not in the family's JSON") from None


def _taken(obj: Any, kind: type[T]) -> T:
    """Numbers may be written as text."""
    try:
        return msgspec.convert(obj, kind, strict=False)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not in the family's form: {error}") from None


def _highest(*figures: int | None) -> int | None:
    return max([figure for figure in figures if figure is not None], default=None)


def _line(text: str, longest: int) -> str:
    """The supplier's text, short and in one line."""
    return _CONTROL.sub(" ", text)[:longest]
