// One good webhook; each test spoils one part of it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MalformedWebhook, SignatureMismatch, StaleTimestamp, verify, verifyNotice } from "esim-dealer";
import { APP_KEY, APP_SECRET, NOON, signed, snapshot } from "./service.mjs";

const ID = "4ce9d9cd-ac9e-4e17-b3a2-c66c358c1ce2";
const TIMESTAMP = String(NOON * 1000);
const BODY = Buffer.from(JSON.stringify(snapshot({ eventType: "DELIVERY_UPDATED", changeHints: ["ICCID_READY"], remark: "é", refundAmount: 1.8 })));
const GOOD = headers(BODY);

function headers(body, secret = APP_SECRET) {
  return {
    "RT-AccessCode": APP_KEY,
    "RT-RequestID": ID,
    "RT-Timestamp": TIMESTAMP,
    "RT-Delivery-ID": "w-1",
    "RT-Delivery-Attempt": "2",
    "RT-Order-Version": "5",
    "X-Signature": signed(secret, TIMESTAMP, ID, APP_KEY, body),
  };
}

const check = (given, body = BODY, options = {}) => verify(given, body, APP_SECRET, { now: NOON + 10, ...options });

test("a true webhook is an event", async () => {
  const event = await check(GOOD, BODY, { appKey: APP_KEY });
  assert.deepEqual([event.eventType, event.hints, event.snapshot.remark], ["DELIVERY_UPDATED", ["ICCID_READY"], "é"]);
  assert.deepEqual([event.attempt, event.orderVersion, event.isTest, event.deliveryId], [2, 5, false, "w-1"]);
  assert.deepEqual([event.dedupeKey, event.snapshot.refundAmount], ["D1 DELIVERY_UPDATED w-1", "1.8"]);
});

const lower = Object.fromEntries(Object.entries(GOOD).map(([name, value]) => [name.toLowerCase(), value]));
for (const [name, given] of [["lower", lower], ["pairs", Object.entries(GOOD)], ["fetch", new Headers(GOOD)], ["node", { ...lower, host: undefined, "set-cookie": ["a", "b"] }]]) {
  test(`headers come as ${name}`, async () => assert.equal((await check(given)).deliveryId, "w-1"));
}

test("the body comes as bytes, a buffer or the text that they are", async () => {
  const { buffer, byteOffset, byteLength } = BODY;
  for (const body of [new Uint8Array(BODY), buffer.slice(byteOffset, byteOffset + byteLength), BODY.toString()]) assert.ok(await check(GOOD, body));
  await assert.rejects(check(GOOD, JSON.parse(BODY)), TypeError);
});

test("either hex case and the alias are fine", async () => {
  const { "X-Signature": signature, ...others } = GOOD;
  assert.ok(await check({ ...GOOD, "X-Signature": signature.toUpperCase() }));
  assert.ok(await check({ ...others, "RT-Signature": signature }));
  await assert.rejects(check({ ...GOOD, "RT-Signature": signature, "X-Signature": "0".repeat(64) }), SignatureMismatch);
});

test("during a reset either side may change first", async () => {
  const other = headers(BODY, "sk_test_other");
  await assert.rejects(check(other), SignatureMismatch);
  assert.ok(await check(other, BODY, { previousSecret: "sk_test_other" }));
  assert.ok(await check({ ...other, "X-Signature-Previous": GOOD["X-Signature"] }));
});

for (const [name, spoiled, body, options] of [
  ["another body", GOOD, Buffer.concat([BODY, Buffer.from(" ")])],
  ["JSON written again", GOOD, JSON.stringify(JSON.parse(BODY), null, 1)],
  ["another timestamp", { ...GOOD, "RT-Timestamp": String(NOON * 1000 + 1) }, BODY],
  ["another request id", { ...GOOD, "RT-RequestID": ID.toUpperCase() }, BODY],
  ["another AppKey", { ...GOOD, "RT-AccessCode": "ak_test_0002" }, BODY],
  ["an AppKey of another tenant", GOOD, BODY, { appKey: "ak_test_0002" }],
]) {
  test(`${name} does not fit`, async () => assert.rejects(check(spoiled, body, options), SignatureMismatch));
}

for (const [seconds, fresh] of [[-301, false], [-300, true], [300, true], [301, false]]) {
  test(`${seconds} s is ${fresh ? "fresh" : "stale"}`, async () => {
    const checked = check(GOOD, BODY, { now: NOON + seconds });
    await (fresh ? checked : assert.rejects(checked, StaleTimestamp));
  });
}

for (const [name, value] of [
  ...["RT-Timestamp", "RT-RequestID", "RT-AccessCode", "X-Signature"].map((missing) => [missing, undefined]),
  ...[["RT-Timestamp", "1767225600"], ["RT-RequestID", ""], ["RT-AccessCode", "é"], ["X-Signature", "0".repeat(63)]],
  ...[["X-Signature-Previous", "é"], ["X-Signature", ["a", "b"]], ["RT-Delivery-ID", ["a", "b"]]],
]) {
  test(`${name} that is ${value} is named`, async () => {
    await assert.rejects(check({ ...GOOD, [name]: value }), (error) => error instanceof MalformedWebhook && error.message.includes(name));
  });
}

for (const text of ["", "[]", "{", '{"orderNo":"D1"}', JSON.stringify(snapshot())]) {
  test(`truly signed nonsense is malformed: ${text.slice(0, 20)}`, async () => {
    await assert.rejects(check(headers(text), text), MalformedWebhook);
  });
}

test("additive headers may be absent or odd, and words of a later version are handed on", async () => {
  const body = JSON.stringify(snapshot({ eventType: "PLAN_RENEWED", changeHints: ["BRAND_NEW"] }));
  const { "RT-Delivery-ID": _, ...others } = headers(body);
  const event = await check({ ...others, "RT-Delivery-Attempt": "second", "RT-Test": "true" }, body);
  assert.deepEqual([event.eventType, event.hints, event.attempt, event.isTest], ["PLAN_RENEWED", ["BRAND_NEW"], undefined, true]);
});

test("a notice is verified too", async () => {
  const body = JSON.stringify({ noticeType: "LOW_BALANCE", noticeId: "7", createTime: "2026-01-01T00:00:00Z", data: { balance: "1" } });
  const notice = await verifyNotice(headers(body), body, APP_SECRET, { now: NOON });
  assert.deepEqual([notice.noticeType, notice.noticeId, notice.data], ["LOW_BALANCE", "7", { balance: "1" }]);
  await assert.rejects(verifyNotice(headers(BODY), BODY, APP_SECRET, { now: NOON }), MalformedWebhook);
});
