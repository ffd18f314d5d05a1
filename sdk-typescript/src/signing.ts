/** How is a call or a webhook signed? By WebCrypto, which every runtime has (specification 5.2). */

export const ACCESS_CODE = "RT-AccessCode";
export const REQUEST_ID = "RT-RequestID";
export const TIMESTAMP = "RT-Timestamp";
export const SIGNATURE = "X-Signature";
export const SIGNATURE_ALIAS = "RT-Signature"; // accepted where X-Signature is absent
export const PREVIOUS_SIGNATURE = "X-Signature-Previous"; // webhooks, for a day after a reset of the AppSecret
export const DELIVERY_ID = "RT-Delivery-ID";
export const DELIVERY_ATTEMPT = "RT-Delivery-Attempt";
export const ORDER_VERSION = "RT-Order-Version";
export const TEST = "RT-Test"; // a sample event that /webhook/test sent
export const TRACE_ID = "X-Trace-Id";

const ALGORITHM = { name: "HMAC", hash: "SHA-256" };

const encoder = new TextEncoder();

/** What a signature covers: the values exactly as sent, and the bytes on the wire. */
export interface Signed {
  timestamp: string;
  requestId: string;
  appKey: string;
  body: Uint8Array;
}

/** The signature: 64 lower-case hexadecimal digits. */
export async function signature(secret: string, signed: Signed): Promise<string> {
  const bytes = new Uint8Array(await crypto.subtle.sign(ALGORITHM.name, await hmacKey(secret), stringToSign(signed)));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether this is the signature, in either hex case. Compares in constant time. */
export async function matches(secret: string, signed: Signed, given: string): Promise<boolean> {
  const bytes = Uint8Array.from(given.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
  return crypto.subtle.verify(ALGORITHM.name, await hmacKey(secret), bytes, stringToSign(signed));
}

function hmacKey(secret: string): Promise<CryptoKey> {
  return crypto.subtle.importKey("raw", encoder.encode(secret), ALGORITHM, false, ["sign", "verify"]);
}

function stringToSign({ timestamp, requestId, appKey, body }: Signed): Uint8Array<ArrayBuffer> {
  const before = encoder.encode(timestamp + requestId + appKey);
  const text = new Uint8Array(before.length + body.length);
  text.set(before);
  text.set(body, before.length);
  return text;
}
