// The eSIM Dealer Open API with nothing but what Node has: `sign`, `order PACKAGE PRICE`, `verify`.
// The SDK does all of this and retries: sdk-typescript.
import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const { ESIM_DEALER_URL, ESIM_DEALER_APP_KEY = "", ESIM_DEALER_APP_SECRET = "" } = process.env;

function signature(timestamp: string, requestId: string, appKey: string, body: string | Buffer): string {
  return createHmac("sha256", ESIM_DEALER_APP_SECRET).update(timestamp + requestId + appKey).update(body).digest("hex");
}

async function call(path: string, request: object): Promise<any> {
  const body = JSON.stringify(request); // made once: signed and sent are the same bytes
  const timestamp = String(Date.now());
  const requestId = randomUUID();
  const headers = {
    "Content-Type": "application/json",
    "RT-AccessCode": ESIM_DEALER_APP_KEY,
    "RT-RequestID": requestId,
    "RT-Timestamp": timestamp,
    "X-Signature": signature(timestamp, requestId, ESIM_DEALER_APP_KEY, body),
  };
  const signal = AbortSignal.timeout(15_000);
  const response = await fetch(`${ESIM_DEALER_URL}/open-api/v1${path}`, { method: "POST", headers, body, signal });
  const answer: any = await response.json();
  if (answer.code !== "000000") throw new Error(`${path} was refused: ${answer.code} ${answer.message}`);
  return answer.data;
}

async function order(packageCode: string, price: string): Promise<void> {
  const transactionId = `ts-${randomUUID()}`; // store it first: the same id again never buys twice
  const items = [{ packageCode, quantity: 1, price }];
  let placed = await call("/esim/order", { transactionId, amount: price, items });
  while (placed.deliveryStatus !== "DELIVERED") {
    if (placed.deliveryStatus === "FAILED") throw new Error(`${placed.orderNo} failed and is refunded`);
    await sleep(1000);
    placed = await call("/esim/query", { orderNo: placed.orderNo });
  }
  const [esim] = placed.items[0].profiles;
  console.log(placed.orderNo, esim.iccid, esim.activationCode);
}

/** `headers` by lower-case name, as `request.headers` has them; `body` as it was received, before any parsing. */
function verify(headers: Record<string, string | undefined>, body: Buffer): boolean {
  const { "rt-timestamp": timestamp = "", "rt-requestid": requestId = "", "rt-accesscode": appKey = "" } = headers;
  const right = Buffer.from(signature(timestamp, requestId, appKey, body));
  const given = [headers["x-signature"], headers["x-signature-previous"]]; // two for a day after a reset
  const fresh = Math.abs(Date.now() - Number(timestamp)) <= 300_000;
  return fresh && given.some((each) => each?.length === 64 && timingSafeEqual(right, Buffer.from(each, "latin1")));
}

const [command, ...words] = process.argv.slice(2);
if (command === "order" && words.length === 2) {
  await order(words[0]!, words[1]!);
} else if (command === "sign") {
  const { TIMESTAMP = "", REQUEST_ID = "" } = process.env;
  console.log(signature(TIMESTAMP, REQUEST_ID, ESIM_DEALER_APP_KEY, readFileSync("/dev/stdin")));
} else if (command !== "verify") {
  console.error("usage: dealer.mjs order PACKAGE PRICE | sign | verify");
  process.exitCode = 2;
} else {
  // The headers as CGI names them.
  const cgi = Object.entries(process.env).filter(([name]) => name.startsWith("HTTP_"));
  const headers = Object.fromEntries(cgi.map(([name, text]) => [name.slice(5).toLowerCase().replaceAll("_", "-"), text]));
  const verified = verify(headers, readFileSync("/dev/stdin"));
  console.log(verified ? "verified: store it, answer 200, then work" : "not verified: answer 401");
  process.exitCode = verified ? 0 : 1;
}
