import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { signature, VERSION } from "esim-dealer";

const { vectors } = JSON.parse(readFileSync(new URL("../../vectors/signing.json", import.meta.url), "utf8"));
const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

for (const { appSecret, body, signature: expected, ...signed } of vectors) {
  test(`the vector of ${body || "an empty body"} is signed as openssl does`, async () => {
    assert.equal(await signature(appSecret, { ...signed, body: new TextEncoder().encode(body) }), expected);
  });
}

test("the version is that of the package", () => assert.equal(VERSION, version));
