// The service's double: verifies signatures by node:crypto, and answers what a test lays out. Time passes by sleeping.
import { createHmac } from "node:crypto";
import { Dealer } from "esim-dealer";

export const APP_KEY = "ak_test_0001";
export const APP_SECRET = "sk_test_canary_0001";
export const NOON = 1_767_225_600;

export function signed(secret, timestamp, requestId, appKey, body) {
  return createHmac("sha256", secret).update(timestamp + requestId + appKey).update(body).digest("hex");
}

export function success(data) {
  return () => reply(200, { code: "000000", message: "success", data });
}

export function refusal(code, status, data = {}, headers = {}) {
  return () => reply(status, { code, message: `refused with ${code}`, data }, headers);
}

export function raw(status, text) {
  return () => new Response(text, { status });
}

export function lost(code) {
  return () => {
    throw Object.assign(new TypeError("fetch failed"), { cause: { code, message: `it is ${code}` } });
  };
}

function reply(status, envelope, headers = {}) {
  return new Response(JSON.stringify(envelope), { status, headers: { "X-Trace-Id": "trace-1", ...headers } });
}

/** A dealer whose calls are answered by `answers[path]` in turn; the last one stays. */
export function connect(answers, { skewSeconds = 0, ...options } = {}) {
  const service = { requests: [], pauses: [], seconds: NOON };
  const seen = new Set();
  const platform = {
    now: () => service.seconds,
    monotonic: () => service.seconds,
    fraction: () => 0.5,
    sleep: async (seconds) => {
      service.pauses.push(seconds);
      service.seconds += seconds;
    },
    fetch: async (url, { headers, body, redirect, method }) => {
      const path = url.replace("https://api.dealer.test/open-api/v1", "");
      service.requests.push({ path, headers, body: JSON.parse(new TextDecoder().decode(body)) });
      const [timestamp, requestId] = [headers["RT-Timestamp"], headers["RT-RequestID"]];
      if (method !== "POST" || redirect !== "manual" || seen.has(requestId)) throw new Error("not as it must be");
      seen.add(requestId);
      const now = (service.seconds + skewSeconds) * 1000;
      if (Math.abs(now - Number(timestamp)) > 300_000) return refusal("101001", 401, { serverTime: Math.floor(now) })();
      const right = signed(APP_SECRET, timestamp, requestId, headers["RT-AccessCode"], body);
      if (headers["X-Signature"] !== right) return refusal("101003", 401)();
      const waiting = answers[path];
      return (waiting.length > 1 ? waiting.shift() : waiting[0])();
    },
  };
  const credentials = { url: "https://api.dealer.test", appKey: APP_KEY, appSecret: APP_SECRET };
  return { service, dealer: new Dealer({ ...credentials, platform, ...options }) };
}

/** An order of one eSIM, as /esim/query answers it. */
export function snapshot(changes = {}) {
  return {
    transactionId: "T1",
    orderNo: "D1",
    orderId: 1,
    payStatus: "PAID",
    deliveryStatus: "DELIVERED",
    orderStatus: "COMPLETED",
    currency: "USD",
    amount: "1.80",
    items: [{ itemNo: "11", packageCode: "TEST-OK", quantity: 1, itemStatus: "DELIVERED", profiles: [] }],
    ...changes,
  };
}
