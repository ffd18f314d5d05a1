"""Why may a call be refused? One class per result code (specification 7).

A Refusal is something the dealer can act on; its docstring is the default message. An error of the service is no
Refusal: it becomes 000001. HTTP statuses and the words of the documentation are in rules/result_codes.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from esim_dealer.wire.vocabulary import ResultCode


class Refusal(Exception):
    """The call was refused; nothing was done."""

    code: ClassVar[ResultCode] = "000001"

    def __init__(self, message: str = "", data: Mapping[str, Any] | None = None, *, retry_after: int | None = None):
        self.message = message or " ".join((type(self).__doc__ or "").split())
        self.data = data or {}
        self.retry_after = retry_after  # seconds
        super().__init__(self.message)


class HeaderMissing(Refusal):
    code = "000101"


class HeaderMalformed(Refusal):
    code = "000102"


class MethodNotAllowed(Refusal):
    """Every operation is a POST."""

    code = "000103"


class NotJson(Refusal):
    """The body is not a JSON object in UTF-8."""

    code = "000104"


class ParameterMissing(Refusal):
    code = "000105"


class ParameterEmpty(Refusal):
    code = "000106"


class ParameterLength(Refusal):
    code = "000107"


class ParameterInvalid(Refusal):
    code = "000108"


class ContentTypeRefused(Refusal):
    """Content-Type must be application/json, in UTF-8 and without Content-Encoding."""

    code = "000109"


class BodyTooLarge(Refusal):
    """The body is over 262144 bytes."""

    code = "000110"


class ParameterNotAccepted(Refusal):
    code = "000111"


class PathUnknown(Refusal):
    """No such path. Operations are POST {base}/open-api/v1/...; /openapi.json lists them."""

    code = "000112"


class TimestampOutsideWindow(Refusal):
    code = "101001"


class AddressNotAllowed(Refusal):
    code = "101002"


class SignatureMismatch(Refusal):
    """X-Signature is not HMAC-SHA256(AppSecret, RT-Timestamp + RT-RequestID + RT-AccessCode + body) in hex."""

    code = "101003"


class RequestIdUsed(Refusal):
    """RT-RequestID was already used: send a new UUID with each call, also with a retry."""

    code = "101004"


class AppKeyUnknown(Refusal):
    """RT-AccessCode names no AppKey of this environment."""

    code = "101005"


class TenantDisabled(Refusal):
    """The tenant or its credential is disabled. Please contact the operator."""

    code = "101006"


class ScopeMissing(Refusal):
    code = "101007"


class RateExceeded(Refusal):
    code = "101013"


class SmsTooSoon(Refusal):
    code = "101013"


class Busy(Refusal):
    """The service is busy; nothing was done. Please retry."""

    code = "900001"


class OutcomeUnknown(Refusal):
    """The database was lost while this call ran: it may have been done. Send it again (an order with the same
    transactionId), or query."""

    code = "900001"

    def __init__(self) -> None:
        super().__init__(data={"outcome": "UNKNOWN"}, retry_after=2)


class StatusForbids(Refusal):
    """Not allowed in the current status."""

    code = "200002"


class NothingRefundable(Refusal):
    """Nothing in this scope can be refunded; data.profiles says why."""

    code = "200003"


class RefundInProgress(Refusal):
    """A refund of the same profiles is in progress; wait for REFUND_COMPLETED, or query the order."""

    code = "200004"


class PriceDiffers(Refusal):
    code = "200005"


class AmountDiffers(Refusal):
    code = "200006"


class BalanceInsufficient(Refusal):
    code = "200007"


class LinesInconsistent(Refusal):
    code = "200008"


class NotAllocated(Refusal):
    """The profile has no codes yet; wait for DELIVERY_UPDATED, or query the order."""

    code = "200010"


class OutOfStock(Refusal):
    code = "200011"


class NotOnSale(Refusal):
    code = "200014"


class CurrencyDiffers(Refusal):
    code = "200015"


class TooManyTopups(Refusal):
    code = "200021"


class NotSupported(Refusal):
    """The package's supplier does not support this operation."""

    code = "200022"


class WalletFrozen(Refusal):
    """The wallet is frozen. Please contact the operator."""

    code = "200020"


class PackageUnknown(Refusal):
    code = "310241"


class OrderNotFound(Refusal):
    """No such order, or orderNo and transactionId name different orders."""

    code = "310272"


class ItemNotInOrder(Refusal):
    code = "310274"


class ProfileNotInItem(Refusal):
    code = "310403"


class ProfileNotFound(Refusal):
    """No profile of yours has this profileId or iccid."""

    code = "310404"


class TopupNotFound(Refusal):
    """No such top-up, or topupNo and transactionId name different ones."""

    code = "310405"


class RefundTransactionIdReused(Refusal):
    """refundTransactionId was already used with different content. Send a new one for a new refund."""

    code = "310402"


class TransactionIdReused(Refusal):
    """transactionId was already used with different content. Send a new transactionId for a new order."""

    code = "310402"


class CallbackUrlRefused(Refusal):
    code = "310501"
