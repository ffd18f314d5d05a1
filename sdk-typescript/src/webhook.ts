/**
 * Did the service really send this webhook, and what does it say? (specification 5.6 and 6.5)
 *
 * Verified on the raw bytes, before anything is parsed. Then store it, answer 200 at once and work afterwards; an event
 * whose `dedupeKey` was seen before is a repetition.
 */

import type { components, Later } from "./api.js";
import { parsed, type Json } from "./envelope.js";
import { MalformedWebhook, SignatureMismatch, StaleTimestamp } from "./errors.js";
import * as signing from "./signing.js";

type Snapshot = components["schemas"]["Snapshot"];

/** Headers as the frameworks hand them out: a fetch Request's, Node's `request.headers`, or pairs. */
export type WebhookHeaders =
  | Iterable<readonly [string, string]>
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * A verified webhook. `snapshot` is the whole order, to replace the local one; `hints` say what changed.
 *
 * Never let an event with a smaller `orderVersion` overwrite the snapshot of a greater one. `attempt` counts the
 * deliveries of this event from 1. `rawBody` are the bytes that were signed. `dedupeKey` is the same for each
 * repetition of the event, and for nothing else.
 */
export interface Event {
  eventType: NonNullable<Snapshot["eventType"]>;
  snapshot: Snapshot;
  hints: NonNullable<Snapshot["changeHints"]>;
  deliveryId: string | undefined;
  attempt: number | undefined;
  orderVersion: number | undefined;
  isTest: boolean;
  requestId: string;
  dedupeKey: string;
  rawBody: Uint8Array;
}

/** A verified notice (specification 6.8). One whose `noticeId` was seen before is a repetition. */
export interface Notice {
  noticeType:
    | (
        | "LOW_BALANCE"
        | "TOPUP_REVIEWED"
        | "REFUND_REVIEWED"
        | "RECEIVER_FAILING"
        | "CREDENTIALS_CHANGED"
        | "PRICE_CHANGED"
        | "PLANS_ENDING"
        | "TEST"
      )
    | Later;
  noticeId: string;
  createTime: string;
  data: Json;
  attempt: number | undefined;
  isTest: boolean;
  requestId: string;
  rawBody: Uint8Array;
}

/**
 * `previousSecret` is accepted beside the secret, while a reset of it is under way. `appKey`, if given, must be
 * RT-AccessCode. `now` is in seconds since the epoch.
 */
export interface VerifyOptions {
  previousSecret?: string;
  appKey?: string;
  toleranceSeconds?: number;
  now?: number;
}

/**
 * The event in a webhook request, once its signature is found true.
 *
 * `rawBody` is the body as received: bytes, or their text as the framework read it. JSON that was parsed and written
 * again does not verify. Throws MalformedWebhook, StaleTimestamp or SignatureMismatch.
 */
export async function verify(
  headers: WebhookHeaders,
  rawBody: Uint8Array | ArrayBuffer | string,
  secret: string,
  options: VerifyOptions = {},
): Promise<Event> {
  const { received, requestId, body } = await verified(headers, rawBody, secret, options);
  const snapshot = parsed(body) as Partial<Snapshot> | undefined;
  if (!snapshot || typeof snapshot.orderNo !== "string" || typeof snapshot.transactionId !== "string") {
    throw new MalformedWebhook("truly signed, but not an order snapshot", { requestId });
  }
  if (!snapshot.eventType) throw new MalformedWebhook("truly signed, but without eventType", { requestId });
  const deliveryId = received.get(signing.DELIVERY_ID);
  return {
    eventType: snapshot.eventType,
    snapshot: snapshot as Snapshot,
    hints: snapshot.changeHints ?? [],
    deliveryId,
    attempt: received.number(signing.DELIVERY_ATTEMPT),
    orderVersion: received.number(signing.ORDER_VERSION),
    isTest: received.get(signing.TEST) === "true",
    requestId,
    dedupeKey: `${snapshot.orderNo} ${snapshot.eventType} ${deliveryId ?? ""}`,
    rawBody: body,
  };
}

/** The notice in a request to the notice URL, once its signature is found true. As `verify`, which see. */
export async function verifyNotice(
  headers: WebhookHeaders,
  rawBody: Uint8Array | ArrayBuffer | string,
  secret: string,
  options: VerifyOptions = {},
): Promise<Notice> {
  const { received, requestId, body } = await verified(headers, rawBody, secret, options);
  const { noticeType, noticeId, createTime, data } = (parsed(body) ?? {}) as Partial<Notice>;
  if (!noticeType || !noticeId || !createTime || typeof data !== "object") {
    throw new MalformedWebhook("truly signed, but not a notice", { requestId });
  }
  const attempt = received.number(signing.DELIVERY_ATTEMPT);
  const isTest = received.get(signing.TEST) === "true";
  return { noticeType, noticeId, createTime, data, attempt, isTest, requestId, rawBody: body };
}

async function verified(
  headers: WebhookHeaders,
  rawBody: Uint8Array | ArrayBuffer | string,
  secret: string,
  { previousSecret, appKey, toleranceSeconds = 300, now = Date.now() / 1000 }: VerifyOptions,
): Promise<{ received: Received; requestId: string; body: Uint8Array }> {
  const body = bytes(rawBody);
  const received = new Received(headers);
  const timestamp = received.form(signing.TIMESTAMP, /^[0-9]{13}$/, "13 digits");
  const requestId = received.form(signing.REQUEST_ID, /^[!-~]{1,128}$/, "visible ASCII");
  const accessCode = received.form(signing.ACCESS_CODE, /^[!-~]{1,128}$/, "visible ASCII");
  const signatures = received.signatures();
  if (appKey !== undefined && accessCode !== appKey) {
    throw new SignatureMismatch(`signed for AppKey ${accessCode}, not ${appKey}`, { requestId });
  }
  const age = now - Number(timestamp) / 1000;
  if (Math.abs(age) > toleranceSeconds) {
    const when = age > 0 ? `${age.toFixed()} s ago` : `${(-age).toFixed()} s in the future`;
    throw new StaleTimestamp(`signed ${when}, ${toleranceSeconds} s are allowed`, { requestId });
  }
  const signed = { timestamp, requestId, appKey: accessCode, body };
  for (const key of [secret, previousSecret]) {
    for (const given of key === undefined ? [] : signatures) {
      if (await signing.matches(key as string, signed, given)) return { received, requestId, body };
    }
  }
  const reason = `the signature does not fit the body of ${body.length} bytes: another AppSecret, or not the raw bytes`;
  throw new SignatureMismatch(reason, { requestId });
}

function bytes(rawBody: Uint8Array | ArrayBuffer | string): Uint8Array {
  if (typeof rawBody === "string") return new TextEncoder().encode(rawBody);
  if (rawBody instanceof ArrayBuffer) return new Uint8Array(rawBody);
  if (ArrayBuffer.isView(rawBody)) return rawBody;
  throw new TypeError("rawBody must be the body as received: parsing and writing it again breaks the signature");
}

/** The headers by lower-case name, each with all its values. */
class Received {
  readonly #values = new Map<string, string[]>();

  constructor(headers: WebhookHeaders) {
    const pairs = Symbol.iterator in headers ? (headers as Iterable<[string, string]>) : Object.entries(headers);
    for (const [name, value] of pairs) {
      const before = this.#values.get(name.toLowerCase()) ?? [];
      if (value !== undefined) this.#values.set(name.toLowerCase(), before.concat(value));
    }
  }

  /** Throws MalformedWebhook where it stands twice. */
  get(name: string): string | undefined {
    const values = this.#values.get(name.toLowerCase()) ?? [];
    if (values.length > 1) throw new MalformedWebhook(`${name} stands there ${values.length} times`);
    return values[0];
  }

  /** An additive number. What is no number is as good as absent: it must not cost an event. */
  number(name: string): number | undefined {
    const value = this.get(name);
    return value !== undefined && /^[0-9]{1,15}$/.test(value) ? Number(value) : undefined;
  }

  /** What the sender offers as signature: the canonical one, or its alias, first. */
  signatures(): string[] {
    const alias = this.get(signing.SIGNATURE) === undefined && this.get(signing.SIGNATURE_ALIAS) !== undefined;
    const names = [alias ? signing.SIGNATURE_ALIAS : signing.SIGNATURE];
    if (this.get(signing.PREVIOUS_SIGNATURE) !== undefined) names.push(signing.PREVIOUS_SIGNATURE);
    return names.map((name) => this.form(name, /^[0-9a-fA-F]{64}$/, "64 hexadecimal digits"));
  }

  form(name: string, form: RegExp, words: string): string {
    const value = this.get(name);
    if (value === undefined) throw new MalformedWebhook(`${name} is missing`);
    if (!form.test(value)) throw new MalformedWebhook(`${name} is not ${words}`);
    return value;
  }
}
