import assert from "node:assert/strict";
import { inspect } from "node:util";
import { test } from "node:test";
import * as sdk from "esim-dealer";
import { APP_SECRET, connect, lost, raw, refusal, snapshot, success } from "./service.mjs";

const LINE = { packageCode: "TEST-OK", quantity: 2, price: "1.80" };
const ordered = (dealer) => dealer.order("T1", [LINE]);

test("an order sends the exact sum of its lines and gives the snapshot, its money as text", async () => {
  const body = JSON.stringify({ code: "000000", message: "", data: snapshot({ refundAmount: 0 }) });
  const { dealer, service } = connect({ "/esim/order": [raw(200, body.replace('"refundAmount":0', '"refundAmount": 999999999999.1234'))] });
  const lines = [LINE, { packageCode: "DAY", quantity: 3, price: "0.0033", periodNum: 7 }];
  const order = await dealer.order("T1", lines, { remark: 'not a "refundAmount":5' });
  assert.equal(order.refundAmount, "999999999999.1234");
  assert.deepEqual(service.requests[0].body, { transactionId: "T1", amount: "3.6693", items: lines, remark: 'not a "refundAmount":5' });
});

test("a field's name in a text is no field", async () => {
  const remark = 'says "refundAmount": 5, "refundAmount":6';
  const { dealer } = connect({ "/esim/query": [success(snapshot({ remark, refundAmount: 1.8 }))] });
  const order = await dealer.query({ orderNo: "D1" });
  assert.deepEqual([order.remark, order.refundAmount], [remark, "1.8"]);
});

for (const price of [1.8, "1,80", "-1", "1e3", "1.23456", " 1"]) {
  test(`${inspect(price)} is no amount`, async () => {
    await assert.rejects(connect({}).dealer.order("T1", [{ ...LINE, price }]), sdk.InvalidValue);
  });
}

for (const parts of [{ quantity: 1.5 }, { quantity: "1" }, { periodNum: 2.5 }]) {
  test(`${inspect(parts)} is no whole number`, async () => {
    await assert.rejects(connect({}).dealer.order("T1", [{ ...LINE, ...parts }]), sdk.InvalidValue);
  });
}

test("lines are made of packages and of checks", () => {
  const item = { packageCode: "A", price: "1", dataType: "TOTAL", minPeriodNum: 3 };
  assert.deepEqual(sdk.Line.of(item, 2), { packageCode: "A", quantity: 2, price: "1" });
  assert.deepEqual(sdk.Line.of({ ...item, dataType: "DAILY_CUTOFF" }), { packageCode: "A", quantity: 1, price: "1", periodNum: 3 });
  assert.throws(() => sdk.Line.checked({ packageCode: "A", quantity: 1, availability: "NOT_FOUND" }), sdk.InvalidValue);
});

test("iteration follows the cursor to the last page", async () => {
  const page = (codes, next) => success({ packages: codes.map((packageCode) => ({ packageCode })), pager: { next } });
  const { dealer, service } = connect({ "/package/list": [page(["A", "B"], "x"), page(["C"])] });
  const found = [];
  for await (const { packageCode } of dealer.iterPackages({ locationCode: "JP" }, 2)) found.push(packageCode);
  assert.deepEqual(found, ["A", "B", "C"]);
  const pagers = service.requests.map(({ body }) => body);
  assert.deepEqual(pagers, [{ locationCode: "JP", pager: { pageSize: 2 } }, { locationCode: "JP", pager: { pageSize: 2, after: "x" } }]);
});

test("a refusal is thrown at once, with everything known about it", async () => {
  const answer = refusal("200005", 409, { lines: [{ index: 0, packageCode: "A", expectedPrice: "2.00", currency: "USD" }] });
  const { dealer, service } = connect({ "/esim/order": [answer] });
  const error = await ordered(dealer).catch((caught) => caught);
  assert.ok(error instanceof sdk.PriceChanged && error instanceof sdk.DealerError);
  const requestId = service.requests[0].headers["RT-RequestID"];
  assert.equal(error.message, `${requestId} (trace trace-1): 200005 refused with 200005`);
  assert.deepEqual([error.code, error.httpStatus, error.lines[0].expectedPrice], ["200005", 409, "2.00"]);
  assert.deepEqual(service.pauses, []);
});

test("what passes is waited for, with a fresh request id and the same order", async () => {
  const busy = refusal("900001", 503, {}, { "Retry-After": "2" });
  const { dealer, service } = connect({ "/esim/order": [busy, raw(502, "<html>"), lost("ECONNRESET"), success(snapshot())] });
  assert.equal((await ordered(dealer)).orderNo, "D1");
  assert.deepEqual(service.pauses, [2.125, 0.375, 0.75]);
  assert.equal(new Set(service.requests.map(({ headers }) => headers["RT-RequestID"])).size, 4);
  assert.deepEqual([...new Set(service.requests.map(({ body }) => body.transactionId))], ["T1"]);
});

const UNKNOWN = [[lost("ECONNRESET")], [lost("ECONNRESET"), refusal("900001", 503)], [raw(504, "late")], [refusal("900001", 503, { outcome: "UNKNOWN" })]];
for (const [number, answers] of UNKNOWN.entries()) {
  for (const path of ["/esim/order", "/esim/topup"]) {
    test(`${path} that may have been placed has an unknown outcome (${number})`, async () => {
      const { dealer, service } = connect({ [path]: [...answers] });
      const call = path === "/esim/order" ? ordered(dealer) : dealer.recharge({ transactionId: "T1", packageCode: "A", price: "1", iccid: "89" });
      const error = await call.catch((caught) => caught);
      assert.ok(error instanceof sdk.OutcomeUnknown, String(error));
      assert.equal(error.transactionId, "T1");
      assert.equal(service.requests.length, 4);
    });
  }
}

for (const [name, answers, kind] of [
  ["never left", [lost("ECONNREFUSED")], sdk.ConnectionFailed],
  ["was refused after a lost answer", [lost("ECONNRESET"), refusal("200011", 409)], sdk.OutOfStock],
  ["went to another address", [raw(404, "nothing here")], sdk.UnreadableAnswer],
]) {
  test(`an order that ${name} is not unknown`, async () => {
    await assert.rejects(ordered(connect({ "/esim/order": answers }).dealer), kind);
  });
}

test("no attempt starts past the deadline", async () => {
  const { dealer, service } = connect({ "/health": [lost("ECONNREFUSED")] }, { retry: { deadlineSeconds: 0.3, retries: 9 } });
  await assert.rejects(dealer.health(), sdk.ConnectionFailed);
  assert.equal(service.requests.length, 2);
});

for (const skewSeconds of [-4000, 4000]) {
  test(`a clock that is ${skewSeconds} s off is corrected once and remembered`, async () => {
    const { dealer, service } = connect({ "/health": [success({ status: "UP" })] }, { skewSeconds });
    await dealer.health();
    await dealer.health();
    assert.equal(service.requests.length, 3);
  });
}

test("a skew that stays is an error", async () => {
  const { dealer, service } = connect({ "/health": [refusal("101001", 401, { serverTime: "2026-01-01T00:00:00Z" })] });
  await assert.rejects(dealer.health(), sdk.ClockSkew);
  assert.equal(service.requests.length, 2);
});

test("waiting polls at growing intervals, outlives a service that is away, and ends with its order", async () => {
  const pending = success(snapshot({ deliveryStatus: "PENDING", orderStatus: "FULFILLING" }));
  const away = Array.from({ length: 4 }, () => lost("ECONNREFUSED"));
  const { dealer, service } = connect({ "/esim/query": [pending, pending, pending, ...away, success(snapshot())] });
  assert.equal((await dealer.waitForDelivery({ orderNo: "D1" })).deliveryStatus, "DELIVERED");
  assert.deepEqual(service.pauses.slice(0, 3), [0.5, 1, 2]);
});

test("waiting in vain gives the last snapshot", async () => {
  const { dealer } = connect({ "/esim/query": [success(snapshot({ deliveryStatus: "PARTIAL", orderStatus: "FULFILLING" }))] });
  const error = await dealer.waitForDelivery({ orderNo: "D1" }, { timeoutSeconds: 7 }).catch((caught) => caught);
  assert.ok(error instanceof sdk.DeliveryTimedOut);
  assert.equal(error.snapshot.deliveryStatus, "PARTIAL");
});

for (const [deliveryStatus, orderStatus] of [["FAILED", "FULFILLING"], ["PENDING", "REFUNDED"], ["PARTIAL", "COMPLETED"]]) {
  test(`an order that is ${orderStatus} and ${deliveryStatus} has failed`, async () => {
    const { dealer } = connect({ "/esim/query": [success(snapshot({ deliveryStatus, orderStatus }))] });
    await assert.rejects(dealer.waitForDelivery({ orderNo: "D1" }), sdk.DeliveryFailed);
  });
}

test("what is missing or malformed is named before anything is sent", async () => {
  assert.throws(() => new sdk.Dealer({ url: "https://a.test", appKey: "k" }), /ESIM_DEALER_APP_SECRET/);
  assert.throws(() => new sdk.Dealer({ url: "a.test", appKey: "k", appSecret: "s" }), sdk.NotConfigured);
  await assert.rejects(connect({ "/package/list": [success({ packages: [] })] }).dealer.package("X"), sdk.NotFound);
});

test("a refusal by profiles names each with its reason", () => {
  const profiles = [{ profileId: 217808503000000, reason: "TOPPED_UP" }];
  assert.match(new sdk.Conflict("no", { data: { profiles } }).message, /^no \(217808503000000 TOPPED_UP\)$/);
  assert.equal(new sdk.Conflict("no").message, "no");
});

test("the secret appears nowhere", async () => {
  const { dealer } = connect({ "/health": [refusal("101003", 401)] });
  const error = await dealer.health().catch((caught) => caught);
  assert.ok(error instanceof sdk.WrongSignature && error.message.includes("check AppSecret"));
  assert.ok(!(inspect(dealer, { depth: 9, showHidden: true }) + inspect(error)).includes(APP_SECRET));
});
