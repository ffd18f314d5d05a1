// A build begins with no file of an earlier one: what was renamed must not be packed.
import { rmSync } from "node:fs";

rmSync(new URL("../dist", import.meta.url), { recursive: true, force: true });
