// A dealer's whole day against a real service, in whichever runtime runs this; prints what came of it as JSON.
import { createServer } from "node:http";
import process from "node:process";
import { Dealer, Line, NotFound, PriceChanged, SignatureMismatch, verify } from "../dist/index.js";

const secret = process.env.ESIM_DEALER_APP_SECRET;
const dealer = new Dealer();
const events = [];
let arrived = () => {};

const server = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", async () => {
    const body = Buffer.concat(parts);
    const event = await verify(request.headers, body, secret);
    const forged = await verify(request.headers, body, "sk_test_other").catch((error) => error);
    events.push({ type: event.eventType, hints: event.hints, forged: forged instanceof SignatureMismatch, ...refunded(event) });
    response.writeHead(200).end();
    arrived();
  });
});

function refunded({ snapshot }) {
  return { refundAmount: snapshot.refundAmount };
}

async function until(type) {
  while (!events.some((event) => event.type === type)) await new Promise((resolve) => (arrived = resolve));
}

await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
await dealer.setWebhook(`http://127.0.0.1:${server.address().port}/`);
const { status } = await dealer.health();
const item = await dealer.package("TEST-OK");
const dear = await dealer.order("ts-0", [{ ...Line.of(item), price: "9.99" }]).catch((error) => error);
const placed = await dealer.order("ts-1", [Line.of(item, 2)]);
const repeated = await dealer.order("ts-1", [Line.of(item, 2)]);
const order = await dealer.waitForDelivery({ orderNo: placed.orderNo }, { timeoutSeconds: 60, pollSeconds: 0.05 });
await until("DELIVERY_UPDATED");
const refund = await dealer.refund({ orderNo: order.orderNo });
const after = await dealer.waitForRefund({ orderNo: order.orderNo }, { pollSeconds: 0.05 });
await until("REFUND_COMPLETED");
const unknown = await dealer.query({ orderNo: "D1" }).catch((error) => error);
const entries = [];
for await (const entry of dealer.iterStatement({}, 1)) entries.push(entry.entryType);
await new Promise((resolve) => server.close(resolve));
server.closeAllConnections?.();

console.log(
  JSON.stringify({
    status,
    dear: dear instanceof PriceChanged && dear.lines[0].expectedPrice,
    amount: placed.amount,
    duplicate: [placed.duplicate, repeated.duplicate],
    iccids: order.items.flatMap(({ profiles }) => profiles.map(({ iccid }) => iccid)).length,
    refund: [refund.status, after.refundAmount],
    unknown: unknown instanceof NotFound && unknown.code,
    entries,
    events,
  }),
);
process.exit(0);
