"""What do clients of the RT family send?

null and "" count as absent, integers may come as strings, unknown keys are ignored.
"""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from dealer_server.rules import refusal
from esim_dealer.wire.calls import Iccid, PackageCode, PeriodNumber, Quantity

# msgspec hands `frozen` down to subclasses; pyright wants it repeated.
# pyright: reportGeneralTypeIssues=false

Q = TypeVar("Q", bound=msgspec.Struct)
TransactionId = Annotated[str, Meta(min_length=1, max_length=100)]
Code = Annotated[str, Meta(min_length=1, max_length=64)]
Amount = Annotated[int, Meta(ge=0, lt=2**53)]
"""Ten-thousandths."""


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class Empty(Request):
    pass


class PackageList(Request):
    location_code: Code | None = None
    type: Code | None = None
    package_code: PackageCode | None = None
    slug: Code | None = None
    iccid: Iccid | None = None
    data_type: Code | int | None = None


class PackageInfo(Request):
    package_code: PackageCode
    count: Quantity
    price: Amount | None = None
    period_num: PeriodNumber | None = None


class Order(Request):
    transaction_id: TransactionId
    package_info_list: Annotated[tuple[PackageInfo, ...], Meta(min_length=1, max_length=100)]
    amount: Amount | None = None


class Pager(Request):
    page_num: Annotated[int, Meta(ge=1, le=10_000)] = 1
    page_size: Annotated[int, Meta(ge=5, le=500)] = 50


class Query(Request):
    pager: Pager = Pager()
    order_no: Code | None = None
    esim_tran_no: Code | None = None
    iccid: Iccid | None = None
    start_time: Code | None = None
    end_time: Code | None = None


class OneEsim(Request):
    """Named by either; where both come, by esimTranNo."""

    esim_tran_no: Code | None = None
    iccid: Iccid | None = None

    @property
    def named(self) -> tuple[str | None, str | None]:
        """profileId and ICCID, one of them None. Raises 000105."""
        if self.esim_tran_no is None and self.iccid is None:
            raise refusal.ParameterMissing("esimTranNo is required; accepted: esimTranNo or iccid")
        return self.esim_tran_no, None if self.esim_tran_no is not None else self.iccid


class SendSms(OneEsim, kw_only=True):
    message: Annotated[str, Meta(min_length=1, max_length=500)]

    def __repr__(self) -> str:
        return "SendSms()"  # the text stays out of logs


class UsageQuery(Request):
    esim_tran_no_list: Annotated[tuple[Code, ...], Meta(min_length=1, max_length=10)]


class TopUp(OneEsim, kw_only=True):
    package_code: PackageCode
    transaction_id: TransactionId
    amount: Amount | None = None
    period_num: PeriodNumber | None = None


class SaveWebhook(Request):
    webhook: Annotated[str, Meta(min_length=1, max_length=512)]


def decoder(kind: type[Q]) -> Callable[[bytes], Q]:
    """Reads a body. Raises msgspec.ValidationError, msgspec.DecodeError."""
    strict = msgspec.json.Decoder(kind, strict=False)

    def decode(body: bytes) -> Q:
        with contextlib.suppress(msgspec.ValidationError):
            return strict.decode(body)
        return msgspec.convert(_without_empty(msgspec.json.decode(body)), kind, strict=False)

    return decode


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(inner) for key, inner in value.items() if inner not in (None, "")}
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


def transaction_id(text: str) -> str:
    """Raises 000108."""
    if not text.isprintable():
        raise refusal.ParameterInvalid("transactionId has control characters; accepted: up to 100 printable ones")
    return text


def moment(name: str, text: str | None) -> datetime | None:
    """A time of a request, without a zone UTC. Raises 000108."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise refusal.ParameterInvalid(f"{name} is no time; accepted: such as 2026-11-20T08:15:30Z") from None
