"""What can go wrong for a dealer, and what to do about it? One tree, rooted in DealerError.

Branch on the class, or on `code` (specification 7); the wording of a message is for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from esim_dealer.wire.snapshot import Snapshot

PROFILES_PRINTED = 5


class DealerError(Exception):
    """Any failure of this SDK, and any code of the service that this version does not know.

    `code` is the service's code; None where the service did not speak. `request_id` is the RT-RequestID sent and
    `trace_id` the service's X-Trace-Id: give both to support. `data` is the answer's `data`, `retry_after` the
    seconds the service asked to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        request_id: str | None = None,
        trace_id: str | None = None,
        http_status: int | None = None,
        data: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.request_id = request_id
        self.trace_id = trace_id
        self.http_status = http_status
        self.data: dict[str, Any] = dict(data or {})
        self.retry_after = retry_after

    def __str__(self) -> str:
        """`<request id> (trace <trace id>): <code> <message>`, without the parts that are not known."""
        trace = f"(trace {self.trace_id})" if self.trace_id else ""
        ids = " ".join(part for part in (self.request_id, trace) if part)
        text = " ".join(part for part in (self.code, self.message) if part)
        return f"{ids}: {text}" if ids else text

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed a moment later; the client has then already retried it."""
        return False

    @property
    def unsettled(self) -> bool:
        """Whether the call may have been carried out although this is what came back."""
        return self.http_status is not None and self.http_status >= 500


# Nothing, or nothing readable, came back.


class NotConfigured(DealerError):
    """The address or the credentials of the service are missing or malformed. Nothing was sent."""


class ClientClosed(DealerError):
    """The client was closed before this call. Nothing was sent."""


class ConnectionFailed(DealerError):
    """The service could not be reached, or did not answer in time. `sent` says whether it may have got the call."""

    sent: bool = False

    @property
    def transient(self) -> bool:
        return True

    @property
    def unsettled(self) -> bool:
        return self.sent


class UnreadableAnswer(DealerError):
    """The answer is not the service's envelope (a proxy's page, a wrong address), or its `data` is not understood."""

    @property
    def transient(self) -> bool:
        status = self.http_status or 0
        return self.code is None and (status >= 500 or status in (408, 429))

    @property
    def unsettled(self) -> bool:
        return self.code is None and not 400 <= (self.http_status or 0) < 500


class OutcomeUnknown(DealerError):
    """An order or a recharge may or may not have been placed, or a refund made that has a `refund_transaction_id`.
    Repeat it with the same `transaction_id`, which is the refund's own of a refund, or query it."""

    transaction_id: str | None = None

    @property
    def transient(self) -> bool:
        return True

    @property
    def unsettled(self) -> bool:
        return True


# The service refused the call before looking at the business.


class AuthenticationError(DealerError):
    """Headers, AppKey or signature were not accepted: check the AppKey, the AppSecret and the address."""


class WrongSignature(AuthenticationError):
    """The signature is not that of this AppKey's AppSecret: check the AppSecret. `data` has the length and the SHA-256
    of the body as the service received it, should something on the way have changed it."""

    def __str__(self) -> str:
        received = self.data.get("bodySha256")
        body = f" If so, compare data.bodySha256 {received} with the SHA-256 of what you signed." if received else ""
        return f"{super().__str__()} (check AppSecret: is it the one of this AppKey?{body})"


class ClockSkew(AuthenticationError):
    """This machine's clock is more than five minutes off. The client corrects itself once by the service's time."""


class RequestIdUsed(AuthenticationError):
    """The RT-RequestID was seen before, as when something between here and the service repeats calls."""

    @property
    def transient(self) -> bool:
        return True

    @property
    def unsettled(self) -> bool:
        return True


class PermissionDenied(DealerError):
    """The source IP is not in the tenant's allowlist, or the tenant or its credentials are disabled."""


class ScopeMissing(PermissionDenied):
    """The AppKey lacks the operation's scope: `data` has `requiredScope` and the `scopes` that it has."""


class RateLimited(DealerError):
    """More calls a second than the tenant's QPS limit: wait `retry_after` seconds."""

    @property
    def transient(self) -> bool:
        return True


class InvalidRequest(DealerError):
    """A parameter is missing, malformed or not accepted here; the message names it."""


# The service understood the call and said no.


@dataclass(frozen=True, slots=True)
class ExpectedPrice:
    """The price the service expects on the order line at `index`."""

    index: int
    package_code: str
    price: Decimal
    currency: str


class PriceChanged(DealerError):
    """A line's price is not the dealer's price of now; `lines` has the expected ones. Decide, then order again."""

    @property
    def lines(self) -> tuple[ExpectedPrice, ...]:
        return tuple(
            ExpectedPrice(line["index"], line["packageCode"], Decimal(line["expectedPrice"]), line["currency"])
            for line in self.data.get("lines", ())
        )


class AmountMismatch(InvalidRequest):
    """The amount is not the sum of price × quantity × periodNum; `expected_amount` is."""

    @property
    def expected_amount(self) -> Decimal | None:
        return _money(self.data.get("expectedAmount"))


class InsufficientBalance(DealerError):
    """The BALANCE wallet does not hold the amount. No order was created: top up, then order again."""

    @property
    def required_amount(self) -> Decimal | None:
        return _money(self.data.get("requiredAmount"))

    @property
    def available_balance(self) -> Decimal | None:
        return _money(self.data.get("availableBalance"))

    @property
    def currency(self) -> str | None:
        return self.data.get("currency")


class WalletFrozen(PermissionDenied):
    """The wallet is frozen by the operator. Nothing was charged."""


class NotFound(DealerError):
    """No such package, order, item, profile or top-up, for this dealer."""


class Conflict(DealerError):
    """Not allowed in the present status of the order, profile or request; `data` says more where there is more."""

    def __str__(self) -> str:
        """Ends with the reason of each profile, where there are some."""
        found = [row for row in self.data.get("profiles") or () if isinstance(row, dict) and row.get("profileId")]
        if not found:
            return super().__str__()
        shown = ", ".join(f"{row['profileId']} {row.get('reason')}" for row in found[:PROFILES_PRINTED])
        more = len(found) - PROFILES_PRINTED
        return f"{super().__str__()} ({shown}{f' and {more} more' if more > 0 else ''})"


class TransactionIdReused(Conflict):
    """The transactionId belongs to an earlier request with different content. A new order needs a new one."""


class OutOfStock(Conflict):
    """Not enough profiles in stock. Nothing was charged."""


class NotOnSale(Conflict):
    """The package is not on sale for this dealer. Nothing was charged."""


class NotSupported(DealerError):
    """The package's supplier does not support this operation."""

    @property
    def unsettled(self) -> bool:
        return False


# The service could not do it.


class ServiceUnavailable(DealerError):
    """Busy or in maintenance; nothing was done. Wait `retry_after` seconds."""

    @property
    def transient(self) -> bool:
        return True

    @property
    def unsettled(self) -> bool:
        return False


class UpstreamFailed(DealerError):
    """The supplier behind the service failed; known not done."""

    @property
    def unsettled(self) -> bool:
        return False


class ServerError(DealerError):
    """An unexpected error of the service, nothing half done. Report the trace id."""


# Waiting for an order's delivery.


class DeliveryFailed(DealerError):
    """The order ended without all its eSIMs; `snapshot` is its last state."""

    snapshot: Snapshot | None = None


class DeliveryTimedOut(DealerError):
    """The order was not yet delivered when the time was over; `snapshot` is its last state seen. It may still come."""

    snapshot: Snapshot | None = None


# Receiving webhooks.


class WebhookError(DealerError):
    """What arrived at the callback URL is not an event to act on: answer 400 or 401 and do nothing."""


class MalformedWebhook(WebhookError):
    """A header is missing, repeated or malformed, or the signed body is not an event."""


class SignatureMismatch(WebhookError):
    """The signature is not that of this body under this secret: forged, altered on the way, or another tenant's."""


class StaleTimestamp(WebhookError):
    """The webhook was signed too long ago or in the future: a replay, or this machine's clock is off."""


def _money(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))


CLASS_OF_CODE: dict[str, type[DealerError]] = {
    "000001": ServerError,
    "000101": AuthenticationError,
    "000102": AuthenticationError,
    "000103": InvalidRequest,
    "000104": InvalidRequest,
    "000105": InvalidRequest,
    "000106": InvalidRequest,
    "000107": InvalidRequest,
    "000108": InvalidRequest,
    "000109": InvalidRequest,
    "000110": InvalidRequest,
    "000111": InvalidRequest,
    "000112": InvalidRequest,
    "101001": ClockSkew,
    "101002": PermissionDenied,
    "101003": WrongSignature,
    "101004": RequestIdUsed,
    "101005": AuthenticationError,
    "101006": PermissionDenied,
    "101007": ScopeMissing,
    "101013": RateLimited,
    "900001": ServiceUnavailable,
    "900002": UpstreamFailed,
    "200002": Conflict,
    "200003": Conflict,
    "200004": Conflict,
    "200005": PriceChanged,
    "200006": AmountMismatch,
    "200007": InsufficientBalance,
    "200008": InvalidRequest,
    "200010": Conflict,
    "200011": OutOfStock,
    "200014": NotOnSale,
    "200015": InvalidRequest,
    "200020": WalletFrozen,
    "200021": Conflict,
    "200022": NotSupported,
    "310241": NotFound,
    "310272": NotFound,
    "310274": NotFound,
    "310402": TransactionIdReused,
    "310403": NotFound,
    "310404": NotFound,
    "310405": NotFound,
    "310501": InvalidRequest,
}


def class_of(code: str, data: Mapping[str, Any]) -> type[DealerError]:
    """The class for a code of the service; `data.outcome` UNKNOWN outweighs the code (specification 7)."""
    if data.get("outcome") == "UNKNOWN":
        return OutcomeUnknown
    return CLASS_OF_CODE.get(code, DealerError)
