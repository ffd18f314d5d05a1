/** What surrounds every answer, and how is its JSON read? (specification 1 rule 5) */

export const SUCCESS = "000000";

export type Json = Record<string, unknown>;

export interface Envelope {
  code: string;
  message: string;
  data: Json;
}

// refundAmount is the one amount that is a JSON number; as text it keeps every digit. In valid JSON this matches only
// a field's name: within a string its quotes would be escaped.
const REFUND_AMOUNT = /(?<!\\)"refundAmount"(\s*:\s*)(-?[0-9][0-9.eE+-]*)/g;

/** The JSON object of a body, its money as text; undefined where there is none. */
export function parsed(body: Uint8Array): Json | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body);
    const value: unknown = JSON.parse(text.replace(REFUND_AMOUNT, '"refundAmount"$1"$2"'));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The envelope in a body; undefined where there is none. */
export function opened(body: Uint8Array): Envelope | undefined {
  const { code, message, data = {} } = parsed(body) ?? {};
  return typeof code === "string" && typeof message === "string" && isObject(data) ? { code, message, data } : undefined;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
