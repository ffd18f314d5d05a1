/** How does a call become a signed request, a reply a result or an error, and when is it tried again? */

import type { components, Operations } from "./api.js";
import { opened, SUCCESS, type Json } from "./envelope.js";
import * as errors from "./errors.js";
import { DealerError } from "./errors.js";
import * as signing from "./signing.js";
import { VERSION } from "./version.js";

type Snapshot = components["schemas"]["Snapshot"];

/** An operation of the service, such as "/esim/order". */
export type Path = keyof Operations;
export type RequestOf<P extends Path> = Operations[P]["request"];
export type AnswerOf<P extends Path> = Operations[P]["answer"];

export const PREFIX = "/open-api/v1";
const LONGEST_POLL_SECONDS = 5;
const NEVER_SENT = new Set([
  ...["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"], // Node
  ...["ConnectionRefused", "FailedToOpenSocket"], // Bun
]);
// What moves money once, however often it is repeated with its transactionId.
const PURCHASES: ReadonlySet<Path> = new Set<Path>(["/esim/order", "/esim/topup"]);

/** How often and how long a call is tried again. No new attempt starts `deadlineSeconds` after the call began. */
export interface RetryPolicy {
  retries: number;
  deadlineSeconds: number;
  firstDelaySeconds: number;
  longestDelaySeconds: number;
}

export const DEFAULT_RETRY: RetryPolicy = {
  retries: 3,
  deadlineSeconds: 60,
  firstDelaySeconds: 0.25,
  longestDelaySeconds: 8,
};

/** Time, chance, ids and the network, as the exchange asks for them. */
export interface Platform {
  /** Seconds since the epoch. */
  now(): number;
  /** Seconds of a clock that is never set. */
  monotonic(): number;
  /** A random number in 0..1. */
  fraction(): number;
  requestId(): string;
  sleep(seconds: number): Promise<void>;
  fetch: (url: string, request: RequestInit) => Promise<Response>;
}

export const SYSTEM: Platform = {
  now: () => Date.now() / 1000,
  monotonic: () => performance.now() / 1000,
  fraction: () => Math.random(),
  requestId: () => crypto.randomUUID(),
  sleep: (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000)),
  fetch: (url, request) => fetch(url, request),
};

export interface Settings {
  url: string;
  appKey: string;
  appSecret: string;
  timeoutSeconds: number;
  retry: RetryPolicy;
}

/** How to wait: asks at once, then at intervals from `pollSeconds` growing to 5 s. */
export interface Waiting {
  timeoutSeconds?: number;
  pollSeconds?: number;
}

/** All calls of one dealer to one service. Remembers how far the service's clock is from ours. */
export class Exchange {
  readonly url: string;
  readonly #settings: Settings;
  readonly #platform: Platform;
  #clockOffsetSeconds = 0;

  /** Throws NotConfigured for an address that is no http(s) URL. */
  constructor(settings: Settings, platform: Platform) {
    this.url = baseAddress(settings.url);
    this.#settings = settings;
    this.#platform = platform;
  }

  /** Sends the call, again where that may help, and returns its result. Throws the DealerError that remains. */
  async perform<P extends Path>(path: P, request: RequestOf<P>, withinSeconds?: number): Promise<AnswerOf<P>> {
    const { retry } = this.#settings;
    const { monotonic, fraction, sleep } = this.#platform;
    const deadline = monotonic() + (withinSeconds ?? retry.deadlineSeconds);
    const body = new TextEncoder().encode(JSON.stringify(request));
    let unsettled = false;
    let corrected = false;
    let attempt = 1;
    for (;;) {
      const result = await this.#attempt(path, body, deadline);
      if (!(result instanceof DealerError)) return result as AnswerOf<P>;
      unsettled = (unsettled || result.unsettled) && !settles(result);
      if (result instanceof errors.ClockSkew && !corrected && this.#correctClock(result)) {
        corrected = true;
        continue;
      }
      const delay = retryDelay(retry, attempt, result, fraction());
      if (delay === undefined || monotonic() + delay > deadline) throw final(path, request, result, unsettled);
      await sleep(delay);
      attempt += 1;
    }
  }

  /**
   * Queries an order until it is as wanted. Throws what `until` or a query throws, and DeliveryTimedOut; but a service
   * that is away for a moment does not end the wait.
   */
  async wait(
    query: RequestOf<"/esim/query">,
    until: (snapshot: Snapshot) => boolean,
    awaited: string,
    { timeoutSeconds = 300, pollSeconds = 0.5 }: Waiting,
  ): Promise<Snapshot> {
    const { monotonic, sleep } = this.#platform;
    const deadline = monotonic() + timeoutSeconds;
    const longest = Math.max(pollSeconds, LONGEST_POLL_SECONDS);
    let latest: Snapshot | undefined;
    for (let poll = 0; ; poll += 1) {
      let pause = Math.min(pollSeconds * 2 ** Math.min(poll, 16), longest);
      let failure: DealerError | undefined;
      try {
        latest = await this.perform("/esim/query", query, deadline - monotonic());
        if (until(latest)) return latest;
      } catch (error) {
        if (!(error instanceof DealerError && error.transient)) throw error;
        failure = error;
        pause = Math.max(pause, error.retryAfter ?? 0);
      }
      const remaining = deadline - monotonic();
      if (remaining <= 0) {
        const where = latest ? state(latest) : "the order could not be queried";
        throw new errors.DeliveryTimedOut(`not ${awaited} within ${timeoutSeconds} s: ${where}`, latest, failure);
      }
      await sleep(Math.min(pause, remaining));
    }
  }

  async #attempt(path: Path, body: Uint8Array<ArrayBuffer>, deadline: number): Promise<Json | DealerError> {
    const { appKey, appSecret, timeoutSeconds } = this.#settings;
    const { now, monotonic, fetch } = this.#platform;
    const requestId = this.#platform.requestId();
    const timestamp = String(Math.floor((now() + this.#clockOffsetSeconds) * 1000));
    const headers = {
      "Content-Type": "application/json",
      "User-Agent": `esim-dealer-typescript/${VERSION}`,
      [signing.ACCESS_CODE]: appKey,
      [signing.REQUEST_ID]: requestId,
      [signing.TIMESTAMP]: timestamp,
      [signing.SIGNATURE]: await signing.signature(appSecret, { timestamp, requestId, appKey, body }),
    };
    const seconds = Math.min(timeoutSeconds, Math.max(deadline - monotonic(), 1));
    const signal = AbortSignal.timeout(Math.ceil(seconds * 1000));
    try {
      const request: RequestInit = { method: "POST", headers, body, signal, redirect: "manual" };
      const response = await fetch(this.url + path, request);
      return read(requestId, response.status, response.headers, new Uint8Array(await response.arrayBuffer()));
    } catch (cause) {
      const failed = cause as { code?: unknown; message?: string; cause?: { code?: unknown; message?: string } };
      const sent = ![failed.code, failed.cause?.code].some((code) => NEVER_SENT.has(String(code)));
      const reason = failed.cause?.message || failed.message || String(cause);
      return new errors.ConnectionFailed(`no answer from the service: ${reason}`, { requestId, cause }, sent);
    }
  }

  /** Adopts the service's time; whether it was told. */
  #correctClock(skew: errors.ClockSkew): boolean {
    const theirs = serverTime(skew.data);
    if (theirs === undefined) return false;
    this.#clockOffsetSeconds = theirs - this.#platform.now();
    return true;
  }
}

/** The result, or the error (not thrown) that this reply means. */
function read(requestId: string, httpStatus: number, headers: Headers, body: Uint8Array): Json | DealerError {
  const traceId = headers.get(signing.TRACE_ID) ?? undefined;
  const retryAfter = wholeSeconds(headers.get("Retry-After"));
  const known = { requestId, httpStatus, traceId, retryAfter };
  const envelope = opened(body);
  if (envelope === undefined) {
    const kind = headers.get("Content-Type") ?? "no content type";
    const reason = `HTTP ${httpStatus} (${kind}) without the service's envelope: is the base address right?`;
    return new errors.UnreadableAnswer(reason, known);
  }
  const { code, message, data } = envelope;
  return code === SUCCESS ? data : errors.refusal(message, { ...known, code, data });
}

/** Retry-After in seconds; its other form, a date, is left to our own backoff. */
function wholeSeconds(retryAfter: string | null): number | undefined {
  return retryAfter !== null && /^[0-9]+$/.test(retryAfter) ? Number(retryAfter) : undefined;
}

/** `data.serverTime` of a 101001 as seconds since the epoch: integer milliseconds, or RFC 3339. */
export function serverTime({ serverTime: given }: Json): number | undefined {
  if (/^[0-9]{13}$/.test(String(given))) return Number(given) / 1000;
  const milliseconds = typeof given === "string" && /^[0-9]{4}-.+T/.test(given) ? Date.parse(given) : Number.NaN;
  return Number.isNaN(milliseconds) ? undefined : milliseconds / 1000;
}

/**
 * How long to wait before attempt number `attempt` + 1; undefined: give up. `fraction` is random, in 0..1.
 *
 * Every call is safe to repeat: it carries a fresh RT-RequestID, and an order its own transactionId, of which the
 * service makes at most one order (specification 4.2).
 */
export function retryDelay(
  policy: RetryPolicy,
  attempt: number,
  error: DealerError,
  fraction: number,
): number | undefined {
  if (!error.transient || attempt > policy.retries) return undefined;
  const backoff = Math.min(policy.longestDelaySeconds, policy.firstDelaySeconds * 2 ** (attempt - 1));
  return Math.max((backoff * (1 + fraction)) / 2, (error.retryAfter ?? 0) + policy.firstDelaySeconds * fraction);
}

/**
 * Whether an error tells the outcome of earlier attempts too.
 *
 * Business refusals do: the service looks a transactionId up before it refuses (specification 4.2). A refusal by
 * authentication says nothing about an earlier attempt without an answer.
 */
function settles({ code }: DealerError): boolean {
  return code !== undefined && /^[23]/.test(code);
}

/** The error to throw: the last one, unless money may have moved without our knowing. */
function final(path: Path, request: object, last: DealerError, unsettled: boolean): DealerError {
  const { transactionId, refundTransactionId } = request as { transactionId: string; refundTransactionId?: string };
  const isRefund = path === "/esim/refund";
  const id = isRefund ? refundTransactionId : PURCHASES.has(path) ? transactionId : undefined;
  if (!unsettled || id === undefined) return last;
  const what = isRefund
    ? `Refund ${id} may or may not have been made: repeat it with the same refundTransactionId`
    : `Order ${id} may or may not have been placed: repeat it with the same transactionId`;
  const reason = `${last.reason.replace(/\.$/, "")}. ${what} or query it`;
  const { code, requestId, traceId, httpStatus, data, retryAfter } = last;
  const known = { code, requestId, traceId, httpStatus, data, retryAfter, cause: last };
  return new errors.OutcomeUnknown(reason, known, id);
}

/**
 * Whether every eSIM of the order is there. Throws DeliveryFailed once none will come any more: FAILED, or an order
 * that has ended (all of it refunded, or cancelled before delivery) without having been DELIVERED (specification 3.2).
 */
export function delivered(snapshot: Snapshot): boolean {
  if (snapshot.deliveryStatus === "DELIVERED") return true;
  if (snapshot.deliveryStatus === "FAILED" || ["COMPLETED", "REFUNDED"].includes(snapshot.orderStatus)) {
    throw new errors.DeliveryFailed(`not delivered: ${state(snapshot)}`, snapshot);
  }
  return false;
}

/** Whether no refund of the order is in progress any more: credited or rejected (specification 3.2). */
export function refundSettled(snapshot: Snapshot): boolean {
  return snapshot.orderStatus !== "REFUNDING";
}

function state({ orderNo, deliveryStatus, orderStatus }: Snapshot): string {
  return `${orderNo} has deliveryStatus ${deliveryStatus}, orderStatus ${orderStatus}`;
}

function baseAddress(url: string): string {
  const address = url.trim().replace(/\/+$/, "").replace(new RegExp(`${PREFIX}$`), "");
  const parts = URL.canParse(address) ? new URL(address) : undefined;
  if (!parts || !/^https?:$/.test(parts.protocol) || parts.search || parts.hash) {
    throw new errors.NotConfigured("the base address must be an http(s) URL, such as https://api.example.com");
  }
  return address + PREFIX;
}
