/** What is bought, and what does it cost? Money is text, and its sums are exact: never a binary fraction. */

import type { components } from "./api.js";
import { InvalidValue } from "./errors.js";

type Schemas = components["schemas"];

const AMOUNT = /^(0|[1-9][0-9]{0,11})(?:\.([0-9]{1,4}))?$/;
const SCALE = 4;

/** One line of an order: `price` is the unit dealer price, of one day for DAILY_* packages, as `"1.80"`. */
export type Line = Schemas["OrderLine"];

export const Line = {
  /** A line at the package's present price; a DAILY_* package is bought for its fewest days if not told. */
  of(item: Schemas["Package"], quantity = 1, periodNum?: number): Line {
    const days = periodNum ?? (item.dataType.startsWith("DAILY") ? item.minPeriodNum : undefined);
    const line: Line = { packageCode: item.packageCode, quantity, price: item.price };
    return days === undefined ? line : { ...line, periodNum: days };
  },

  /** A line at the price that a check found. Throws InvalidValue where it found none. */
  checked({ packageCode, quantity, price, periodNum }: Schemas["CheckedItem"]): Line {
    if (price === undefined) throw new InvalidValue(`${packageCode} has no price: it is not on sale`);
    return periodNum === undefined ? { packageCode, quantity, price } : { packageCode, quantity, price, periodNum };
  },
};

/** The sum of price × quantity × periodNum. Throws InvalidValue for what is no amount, or no whole number. */
export function total(lines: readonly Line[]): string {
  const units = lines.map(
    ({ price, quantity, periodNum }) =>
      unitsOf(price) * wholeNumber("quantity", quantity) * wholeNumber("periodNum", periodNum ?? 1),
  );
  return text(units.reduce((sum, each) => sum + each, 0n));
}

/** The amount as it was given. Throws InvalidValue for what is no amount, a number included. */
export function money(value: string): string {
  if (typeof value !== "string") throw new InvalidValue(`money is text, which no sum rounds: write "${value}"`);
  if (!AMOUNT.test(value)) {
    throw new InvalidValue(`"${value}" is not an amount: digits, at most one point and four decimals, as in "1.80"`);
  }
  return value;
}

function unitsOf(amount: string): bigint {
  const [, whole = "", decimals = ""] = AMOUNT.exec(money(amount)) ?? [];
  return BigInt(whole + decimals.padEnd(SCALE, "0"));
}

function wholeNumber(name: string, value: number): bigint {
  if (!Number.isInteger(value)) throw new InvalidValue(`${name} is ${value}; accepted: a whole number`);
  return BigInt(value);
}

function text(units: bigint): string {
  const digits = units.toString().padStart(SCALE + 1, "0");
  const decimals = digits.slice(-SCALE).replace(/0{1,2}$/, "");
  return `${digits.slice(0, -SCALE)}.${decimals}`;
}
