/** Client of the eSIM Dealer Open API v1. */

import type { components } from "./api.js";

export type { Later, Operations } from "./api.js";
export { Dealer, type DealerOptions, type OrderName, type ProfileName } from "./dealer.js";
export {
  AmountMismatch,
  AuthenticationError,
  ClockSkew,
  Conflict,
  ConnectionFailed,
  DealerError,
  DeliveryFailed,
  DeliveryTimedOut,
  InsufficientBalance,
  InvalidRequest,
  InvalidValue,
  MalformedWebhook,
  NotConfigured,
  NotFound,
  NotOnSale,
  NotSupported,
  OutcomeUnknown,
  OutOfStock,
  PermissionDenied,
  PriceChanged,
  RateLimited,
  RequestIdUsed,
  ScopeMissing,
  ServerError,
  ServiceUnavailable,
  SignatureMismatch,
  StaleTimestamp,
  TransactionIdReused,
  UnreadableAnswer,
  UpstreamFailed,
  WalletFrozen,
  WebhookError,
  WrongSignature,
  type ExpectedPrice,
} from "./errors.js";
export type { AnswerOf, Path, Platform, RequestOf, RetryPolicy, Waiting } from "./exchange.js";
export { Line } from "./money.js";
export { signature, type Signed } from "./signing.js";
export { VERSION } from "./version.js";
export { verify, verifyNotice, type Event, type Notice, type VerifyOptions, type WebhookHeaders } from "./webhook.js";

/** Every object of calls and answers by its name in the reference, such as `Schemas["Package"]`. */
export type Schemas = components["schemas"];
export type Package = Schemas["Package"];
export type Profile = Schemas["Profile"];
export type Snapshot = Schemas["Snapshot"];
