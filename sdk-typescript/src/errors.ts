/**
 * What can go wrong for a dealer, and what to do about it? One tree, rooted in DealerError.
 *
 * Branch on the class, or on `code` (specification 7); the wording of a message is for people.
 */

import type { components } from "./api.js";

type Snapshot = components["schemas"]["Snapshot"];

/** What is known of a call that failed. */
export interface Known {
  code?: string | undefined;
  requestId?: string | undefined;
  traceId?: string | undefined;
  httpStatus?: number | undefined;
  data?: Record<string, unknown> | undefined;
  retryAfter?: number | undefined;
  cause?: unknown;
}

/**
 * Any failure of this SDK, and any code of the service that this version does not know.
 *
 * `code` is the service's code, undefined where the service did not speak. `requestId` is the RT-RequestID sent and
 * `traceId` the service's X-Trace-Id: give both to support; `message` begins with them. `reason` is the service's own
 * message, `data` the answer's `data`, `retryAfter` the seconds the service asked to wait.
 */
export class DealerError extends Error {
  readonly reason: string;
  readonly code: string | undefined;
  readonly requestId: string | undefined;
  readonly traceId: string | undefined;
  readonly httpStatus: number | undefined;
  readonly data: Record<string, unknown>;
  readonly retryAfter: number | undefined;

  constructor(reason: string, known: Known = {}) {
    super(printed(reason, known), known.cause === undefined ? undefined : { cause: known.cause });
    this.name = new.target.name;
    this.reason = reason;
    this.code = known.code;
    this.requestId = known.requestId;
    this.traceId = known.traceId;
    this.httpStatus = known.httpStatus;
    this.data = known.data ?? {};
    this.retryAfter = known.retryAfter;
  }

  /** Whether the same call may succeed a moment later; the client has then already retried it. */
  get transient(): boolean {
    return false;
  }

  /** Whether the call may have been carried out although this is what came back. */
  get unsettled(): boolean {
    return this.httpStatus !== undefined && this.httpStatus >= 500;
  }
}

/** `<request id> (trace <trace id>): <code> <reason>`, without the parts that are not known. */
function printed(reason: string, { requestId, traceId, code }: Known): string {
  const ids = [requestId, traceId && `(trace ${traceId})`].filter(Boolean).join(" ");
  const text = [code, reason].filter(Boolean).join(" ");
  return ids ? `${ids}: ${text}` : text;
}

// Nothing was sent.

/** The address or the credentials of the service are missing or malformed. Nothing was sent. */
export class NotConfigured extends DealerError {}

/** A value that no call can carry, such as an amount that is a number. Nothing was sent. */
export class InvalidValue extends DealerError {}

// Nothing, or nothing readable, came back.

/** The service could not be reached, or did not answer in time. `sent` says whether it may have got the call. */
export class ConnectionFailed extends DealerError {
  constructor(reason: string, known: Known = {}, readonly sent = false) {
    super(reason, known);
  }

  override get transient(): boolean {
    return true;
  }

  override get unsettled(): boolean {
    return this.sent;
  }
}

/** The answer is not the service's envelope: a proxy's page, or a wrong address. */
export class UnreadableAnswer extends DealerError {
  override get transient(): boolean {
    const status = this.httpStatus ?? 0;
    return this.code === undefined && (status >= 500 || status === 408 || status === 429);
  }

  override get unsettled(): boolean {
    const status = this.httpStatus ?? 0;
    return this.code === undefined && !(status >= 400 && status < 500);
  }
}

/** An order may or may not have been placed, or a refund made that has a `refundTransactionId`: repeat it with the same
 * id (here `transactionId`), or query it. */
export class OutcomeUnknown extends DealerError {
  constructor(reason: string, known: Known = {}, readonly transactionId?: string) {
    super(reason, known);
  }

  override get transient(): boolean {
    return true;
  }

  override get unsettled(): boolean {
    return true;
  }
}

// The service refused the call before looking at the business.

/** Headers, AppKey or signature were not accepted: check the AppKey, the AppSecret and the address. */
export class AuthenticationError extends DealerError {}

/**
 * The signature is not that of this AppKey's AppSecret: check the AppSecret. `data` has the length and the SHA-256 of
 * the body as the service received it, should something on the way have changed it.
 */
export class WrongSignature extends AuthenticationError {
  constructor(reason: string, known: Known = {}) {
    const received = known.data?.["bodySha256"];
    const body = received ? ` If so, compare data.bodySha256 ${received} with the SHA-256 of what you signed.` : "";
    super(`${reason} (check AppSecret: is it the one of this AppKey?${body})`, known);
  }
}

/** This machine's clock is more than five minutes off. The client corrects itself once by the service's time. */
export class ClockSkew extends AuthenticationError {}

/** The RT-RequestID was seen before, as when something between here and the service repeats calls. */
export class RequestIdUsed extends AuthenticationError {
  override get transient(): boolean {
    return true;
  }

  override get unsettled(): boolean {
    return true;
  }
}

/** The source IP is not in the tenant's allowlist, or the tenant or its credentials are disabled. */
export class PermissionDenied extends DealerError {}

/** The AppKey lacks the operation's scope: `data` has `requiredScope` and the `scopes` that it has. */
export class ScopeMissing extends PermissionDenied {}

/** More calls a second than the tenant's QPS limit: wait `retryAfter` seconds. */
export class RateLimited extends DealerError {
  override get transient(): boolean {
    return true;
  }
}

/** A parameter is missing, malformed or not accepted here; the message names it. */
export class InvalidRequest extends DealerError {}

// The service understood the call and said no.

/** The price the service expects on the order line at `index`. */
export interface ExpectedPrice {
  index: number;
  packageCode: string;
  expectedPrice: string;
  currency: string;
}

/** A line's price is not the dealer's price of now; `lines` has the expected ones. Decide, then order again. */
export class PriceChanged extends DealerError {
  get lines(): ExpectedPrice[] {
    return (this.data["lines"] as ExpectedPrice[] | undefined) ?? [];
  }
}

/** The amount is not the sum of price × quantity × periodNum; `expectedAmount` is. */
export class AmountMismatch extends InvalidRequest {
  get expectedAmount(): string | undefined {
    return this.data["expectedAmount"] as string | undefined;
  }
}

/** The BALANCE wallet does not hold the amount. No order was created: top up, then order again. */
export class InsufficientBalance extends DealerError {
  get requiredAmount(): string | undefined {
    return this.data["requiredAmount"] as string | undefined;
  }

  get availableBalance(): string | undefined {
    return this.data["availableBalance"] as string | undefined;
  }

  get currency(): string | undefined {
    return this.data["currency"] as string | undefined;
  }
}

/** The wallet is frozen by the operator. Nothing was charged. */
export class WalletFrozen extends PermissionDenied {}

/** No such package, order, item, profile or top-up, for this dealer. */
export class NotFound extends DealerError {}

/** Not allowed in the present status of the order, profile or request; `data` says more where there is more. */
export class Conflict extends DealerError {
  constructor(reason: string, known: Known = {}) {
    super(reason + reasonsOfProfiles(known.data), known);
  }
}

/** ` (<profileId> <reason>, ...)`, where the answer has a reason for each profile. */
function reasonsOfProfiles(data: Known["data"]): string {
  const given = data?.["profiles"];
  const found = (Array.isArray(given) ? given : []).filter((row) => row?.profileId);
  if (!found.length) return "";
  const shown = found.slice(0, 5).map((row) => `${row.profileId} ${row.reason}`);
  return ` (${shown.join(", ")}${found.length > 5 ? ` and ${found.length - 5} more` : ""})`;
}

/** The transactionId belongs to an earlier request with different content. A new order needs a new one. */
export class TransactionIdReused extends Conflict {}

/** Not enough profiles in stock. Nothing was charged. */
export class OutOfStock extends Conflict {}

/** The package is not on sale for this dealer. Nothing was charged. */
export class NotOnSale extends Conflict {}

/** The package's supplier does not support this operation. */
export class NotSupported extends DealerError {
  override get unsettled(): boolean {
    return false;
  }
}

// The service could not do it.

/** Busy or in maintenance; nothing was done. Wait `retryAfter` seconds. */
export class ServiceUnavailable extends DealerError {
  override get transient(): boolean {
    return true;
  }

  override get unsettled(): boolean {
    return false;
  }
}

/** The supplier behind the service failed; known not done. */
export class UpstreamFailed extends DealerError {
  override get unsettled(): boolean {
    return false;
  }
}

/** An unexpected error of the service, nothing half done. Report the trace id. */
export class ServerError extends DealerError {}

// Waiting for an order's delivery.

/** The order ended without all its eSIMs; `snapshot` is its last state. */
export class DeliveryFailed extends DealerError {
  constructor(reason: string, readonly snapshot: Snapshot) {
    super(reason);
  }
}

/** The order was not yet delivered when the time was over; `snapshot` is its last state seen. It may still come. */
export class DeliveryTimedOut extends DealerError {
  constructor(reason: string, readonly snapshot: Snapshot | undefined, cause?: unknown) {
    super(reason, { cause });
  }
}

// Receiving webhooks.

/** What arrived at the callback URL is not an event to act on: answer 400 or 401 and do nothing. */
export class WebhookError extends DealerError {}

/** A header is missing, repeated or malformed, or the signed body is not an event. */
export class MalformedWebhook extends WebhookError {}

/** The signature is not that of this body under this secret: forged, altered on the way, or another tenant's. */
export class SignatureMismatch extends WebhookError {}

/** The webhook was signed too long ago or in the future: a replay, or this machine's clock is off. */
export class StaleTimestamp extends WebhookError {}

type ErrorClass = new (reason: string, known?: Known) => DealerError;

const CODES: ReadonlyArray<readonly [ErrorClass, string]> = [
  [ServerError, "000001"],
  [AuthenticationError, "000101 000102 101005"],
  [WrongSignature, "101003"],
  [InvalidRequest, "000103 000104 000105 000106 000107 000108 000109 000110 000111 000112 200008 200015 310501"],
  [ClockSkew, "101001"],
  [PermissionDenied, "101002 101006"],
  [RequestIdUsed, "101004"],
  [ScopeMissing, "101007"],
  [RateLimited, "101013"],
  [ServiceUnavailable, "900001"],
  [UpstreamFailed, "900002"],
  [Conflict, "200002 200003 200004 200010 200021"],
  [PriceChanged, "200005"],
  [AmountMismatch, "200006"],
  [InsufficientBalance, "200007"],
  [OutOfStock, "200011"],
  [NotOnSale, "200014"],
  [WalletFrozen, "200020"],
  [NotSupported, "200022"],
  [NotFound, "310241 310272 310274 310403 310404 310405"],
  [TransactionIdReused, "310402"],
];

const CLASS_OF_CODE = new Map(CODES.flatMap(([kind, codes]) => codes.split(" ").map((code) => [code, kind] as const)));

/** The error of a code of the service; `data.outcome` UNKNOWN outweighs the code (specification 7). */
export function refusal(reason: string, known: Known & { code: string; data: Record<string, unknown> }): DealerError {
  const kind = known.data["outcome"] === "UNKNOWN" ? OutcomeUnknown : (CLASS_OF_CODE.get(known.code) ?? DealerError);
  return new kind(reason, known);
}
