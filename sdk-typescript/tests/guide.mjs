// Writes the samples of the guide and the README into guide/, where the compiler checks them.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const folder = new URL("guide/", import.meta.url);
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder);
const pages = ["../../docs/guides/typescript.md", "../README.md"].map((page) => readFileSync(new URL(page, import.meta.url), "utf8"));
const samples = [...pages.join("\n").matchAll(/^```ts\n(.*?)^```$/gms)];
if (samples.length !== 5) throw new Error(`the guide and the README have ${samples.length} samples`);
for (const [number, [, text]] of samples.entries()) writeFileSync(new URL(`${number}.ts`, folder), text);
