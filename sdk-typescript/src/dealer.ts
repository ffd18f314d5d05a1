/** How does a dealer's program call the service? One method per operation; each throws DealerError. */

import type { components } from "./api.js";
import { NotConfigured, NotFound } from "./errors.js";
import {
  DEFAULT_RETRY,
  delivered,
  Exchange,
  refundSettled,
  SYSTEM,
  type AnswerOf,
  type Path,
  type Platform,
  type RequestOf,
  type RetryPolicy,
  type Waiting,
} from "./exchange.js";
import { money, total, type Line } from "./money.js";

type Schemas = components["schemas"];
type Lists = "/package/list" | "/esim/order/list" | "/esim/profile/list" | "/account/statement" | "/webhook/delivery/list";
type Filter<P extends Lists> = Omit<RequestOf<P>, "pager">;

/** An order by one of its names, or both. */
export type OrderName = Schemas["QueryOrder"];
/** An eSIM by one of its names. */
export type ProfileName = { profileId: number | string } | { iccid: string };

const PAGE_SIZE = 200;

/**
 * `url`, `appKey` and `appSecret` default to the environment's ESIM_DEALER_URL, ESIM_DEALER_APP_KEY and
 * ESIM_DEALER_APP_SECRET, where the runtime has a `process.env`. `timeoutSeconds` bounds each attempt; `retry` says how
 * often and how long a call is tried again; `platform` replaces the network and the clock.
 */
export interface DealerOptions {
  url?: string | undefined;
  appKey?: string | undefined;
  appSecret?: string | undefined;
  timeoutSeconds?: number;
  retry?: Partial<RetryPolicy>;
  platform?: Partial<Platform>;
}

/** The service as one dealer sees it. Throws NotConfigured where address or credentials are missing. */
export class Dealer {
  readonly #exchange: Exchange;

  constructor({ url, appKey, appSecret, timeoutSeconds = 15, retry, platform }: DealerOptions = {}) {
    const settings = {
      url: given(url, "ESIM_DEALER_URL", "url"),
      appKey: given(appKey, "ESIM_DEALER_APP_KEY", "appKey"),
      appSecret: given(appSecret, "ESIM_DEALER_APP_SECRET", "appSecret"),
      timeoutSeconds,
      retry: { ...DEFAULT_RETRY, ...retry },
    };
    this.#exchange = new Exchange(settings, { ...SYSTEM, ...platform });
  }

  /** Any operation, with its request; what it answers. */
  call<P extends Path>(path: P, request: RequestOf<P>): Promise<AnswerOf<P>> {
    return this.#exchange.perform(path, request);
  }

  /** Whether signing and connectivity work, and which tenant this is (specification 4.1). */
  health(): Promise<Schemas["Health"]> {
    return this.call("/health", {});
  }

  /** The BALANCE wallet. */
  balance(): Promise<Schemas["Balance"]> {
    return this.call("/account/balance", {});
  }

  /** Countries and regions that packages are sold for. */
  regions(filter: Schemas["RegionList"] = {}): Promise<Schemas["Regions"]> {
    return this.call("/region/list", filter);
  }

  /** One page of the packages on sale, with this dealer's prices. */
  packages(query: Schemas["PackageList"] = {}): Promise<Schemas["Packages"]> {
    return this.call("/package/list", query);
  }

  /** All packages that `packages` would give, page after page. */
  iterPackages(filter: Filter<"/package/list"> = {}, pageSize = PAGE_SIZE): AsyncGenerator<Schemas["Package"]> {
    return this.#each("/package/list", filter, pageSize, (page) => page.packages);
  }

  /** The package of that code. Throws NotFound. */
  async package(packageCode: string): Promise<Schemas["Package"]> {
    const { packages } = await this.packages({ packageCode });
    const found = packages.find((each) => each.packageCode === packageCode);
    if (!found) throw new NotFound(`no package ${packageCode} on sale for this dealer`, { code: "310241" });
    return found;
  }

  /**
   * Buy, paid from the wallet (specification 4.2). Without `amount` it is the sum of the lines.
   *
   * However often it is repeated with the same `transactionId`, one order is made; a repetition, also one that this
   * client did by itself after a lost answer, has `duplicate` true. Throws OutcomeUnknown where that repetition is up
   * to you, and InsufficientBalance, PriceChanged, OutOfStock and others where nothing was bought.
   */
  async order(
    transactionId: string,
    lines: readonly Line[],
    { amount, ...others }: { amount?: string; currency?: string; remark?: string } = {},
  ): Promise<Schemas["Snapshot"]> {
    const sum = amount === undefined ? total(lines) : money(amount);
    return this.call("/esim/order", { transactionId, amount: sum, items: [...lines], ...others });
  }

  /**
   * Add a plan to an eSIM, a TOPUP package paid from the wallet (specification 4.14). Without `amount` it is price ×
   * periodNum. As safe to repeat as `order`; DELIVERED once the supplier has applied it: `waitForDelivery`.
   */
  async recharge(
    request: Omit<Schemas["RechargeProfile"], "amount" | "profileId" | "iccid"> & ProfileName & { amount?: string },
  ): Promise<Schemas["Snapshot"]> {
    const { packageCode, price, periodNum, amount } = request;
    const sum = amount === undefined ? total([{ packageCode, quantity: 1, price, periodNum }]) : money(amount);
    return this.call("/esim/topup", { ...request, amount: sum });
  }

  /** The plans of an eSIM: the one it was sold with, and its recharges. Throws NotFound. */
  plans(profile: ProfileName): Promise<Schemas["Plans"]> {
    return this.call("/esim/profile/plans", profile);
  }

  /**
   * What would become of an order now: prices, availability, the balance after it. Nothing is bought.
   *
   * Lines may leave their price out; `Line.checked` makes a line of an order from each item of the answer.
   * `wouldRefuse` is what `order` would be refused with; then nothing is thrown here.
   */
  checkOrder(
    items: readonly Schemas["CheckLine"][],
    others: Omit<Schemas["CheckOrder"], "items"> = {},
  ): Promise<Schemas["OrderCheck"]> {
    return this.call("/esim/order/check", { items: [...items], ...others });
  }

  /** The order as it is now. Throws NotFound. */
  query(order: OrderName): Promise<Schemas["Snapshot"]> {
    return this.call("/esim/query", order);
  }

  /**
   * The order once deliveryStatus is DELIVERED. Throws DeliveryFailed when it will not come, DeliveryTimedOut after
   * `timeoutSeconds` (300); both have `snapshot`.
   */
  waitForDelivery(order: OrderName, waiting: Waiting = {}): Promise<Schemas["Snapshot"]> {
    return this.#exchange.wait(order, delivered, "delivered", waiting);
  }

  /** One page of the orders, newest first. */
  orders(query: Schemas["OrderList"] = {}): Promise<Schemas["Orders"]> {
    return this.call("/esim/order/list", query);
  }

  /** All orders that `orders` would give, page after page. */
  iterOrders(filter: Filter<"/esim/order/list"> = {}, pageSize = PAGE_SIZE): AsyncGenerator<Schemas["Snapshot"]> {
    return this.#each("/esim/order/list", filter, pageSize, (page) => page.orders);
  }

  /** One page of the allocated eSIMs, newest first; others by lifecycleStatus "PENDING" or their profileId. */
  profiles(query: Schemas["ProfileList"] = {}): Promise<Schemas["Profiles"]> {
    return this.call("/esim/profile/list", query);
  }

  /** All eSIMs that `profiles` would give, page after page. */
  iterProfiles(
    filter: Filter<"/esim/profile/list"> = {},
    pageSize = PAGE_SIZE,
  ): AsyncGenerator<Schemas["ProfileRecord"]> {
    return this.#each("/esim/profile/list", filter, pageSize, (page) => page.records);
  }

  /**
   * Give money back into the wallet (specification 4.3); without `items` the whole order. `refundTransactionId` (a new
   * one for each refund) makes a repetition safe for ever. REFUNDED is credited, REFUNDING in progress: see
   * `waitForRefund`. Throws NotFound, Conflict where nothing can be refunded.
   */
  refund(request: Schemas["RefundOrder"]): Promise<Schemas["Refund"]> {
    return this.call("/esim/refund", request);
  }

  /**
   * The order once no refund of it is in progress; `refundAmount` says what was given back in all. Throws
   * DeliveryTimedOut after `timeoutSeconds` (300): a refund may wait for a person.
   */
  waitForRefund(order: OrderName, waiting: Waiting = {}): Promise<Schemas["Snapshot"]> {
    return this.#exchange.wait(order, refundSettled, "settled", waiting);
  }

  /**
   * Void a profile without giving money back (specification 4.4); for money back use `refund` instead. Repeating it is
   * success. `asyncStatus` PENDING: its supplier has to be asked. Throws NotFound, Conflict.
   */
  cancel(profile: ProfileName): Promise<Schemas["Voided"]> {
    return this.call("/esim/profile/cancel", profile);
  }

  /** Suspend a profile until `unsuspend` (specification 4.13). Throws NotSupported where its supplier suspends none. */
  suspend(profile: ProfileName): Promise<Schemas["Suspended"]> {
    return this.call("/esim/profile/suspend", profile);
  }

  /** Let a suspended profile work again; as `suspend` in all else. */
  unsuspend(profile: ProfileName): Promise<Schemas["Suspended"]> {
    return this.call("/esim/profile/unsuspend", profile);
  }

  /** What is used of a profile's plan, as last heard; with `refresh` its supplier is asked, at most once a minute. */
  usage(profile: ProfileName & { refresh?: boolean }): Promise<Schemas["Usage"]> {
    return this.call("/esim/profile/usage", profile);
  }

  /**
   * Send a text of 1 to 500 characters to the device in which the profile is installed; one a minute. A repetition with
   * the same `transactionId` sends nothing, and tells what became of one whose `status` was PENDING.
   */
  sms(request: { transactionId: string; message: string } & ProfileName): Promise<Schemas["Sms"]> {
    return this.call("/esim/profile/sms", request);
  }

  /** Move a profile through its life, in the test environment. Elsewhere NotFound is thrown. */
  advance(request: Schemas["AdvanceProfile"]): Promise<Schemas["Profile"]> {
    return this.call("/test/profile/advance", request);
  }

  /** One page of the wallet's entries, newest first; all of them sum to the balance. */
  statement(query: Schemas["Statement"] = {}): Promise<Schemas["Entries"]> {
    return this.call("/account/statement", query);
  }

  /** All entries that `statement` would give, page after page. */
  iterStatement(filter: Filter<"/account/statement"> = {}, pageSize = PAGE_SIZE): AsyncGenerator<Schemas["Entry"]> {
    return this.#each("/account/statement", filter, pageSize, (page) => page.entries);
  }

  /** Ask for money in the wallet; an operator approves it. A repetition has `duplicate` true. */
  async topup(request: Schemas["RequestTopup"]): Promise<Schemas["Topup"]> {
    return this.call("/account/topup", { ...request, amount: money(request.amount) });
  }

  /** A top-up as it stands. Throws NotFound. */
  queryTopup(topup: Schemas["QueryTopup"]): Promise<Schemas["Topup"]> {
    return this.call("/account/topup/query", topup);
  }

  /** Withdraw a top-up that waits for review; a repetition has `duplicate` true. Throws NotFound, Conflict. */
  cancelTopup(topup: Schemas["CancelTopup"]): Promise<Schemas["Topup"]> {
    return this.call("/account/topup/cancel", topup);
  }

  /**
   * Send events to this URL from now on; null: send none (specification 4.5). `standardHeaders`: whether they carry
   * those of standard-webhooks too; without it that stays as it is.
   */
  setWebhook(
    callbackUrl: string | null,
    { standardHeaders }: { standardHeaders?: boolean } = {},
  ): Promise<Schemas["Webhook"]> {
    return this.call("/webhook/set", standardHeaders === undefined ? { callbackUrl } : { callbackUrl, standardHeaders });
  }

  /** The callback URL, and whether its deliveries arrive. */
  webhook(): Promise<Schemas["WebhookState"]> {
    return this.call("/webhook/query", {});
  }

  /** Have a sample ORDER_PAID sent, truly signed and marked RT-Test; what the receiver said to it. Throws Conflict. */
  testWebhook(): Promise<Schemas["WebhookTest"]> {
    return this.call("/webhook/test", {});
  }

  /** One page of the events on their way or arrived, newest first, each with its attempts. */
  deliveries(query: Schemas["DeliveryList"] = {}): Promise<Schemas["Deliveries"]> {
    return this.call("/webhook/delivery/list", query);
  }

  /** All events that `deliveries` would give, page after page. */
  iterDeliveries(
    filter: Filter<"/webhook/delivery/list"> = {},
    pageSize = PAGE_SIZE,
  ): AsyncGenerator<Schemas["Delivery"]> {
    return this.#each("/webhook/delivery/list", filter, pageSize, (page) => page.deliveries);
  }

  /** Have that event sent once more: same body, hints and RT-Delivery-ID, one attempt. Throws NotFound. */
  resend(deliveryId: string): Promise<Schemas["Delivery"]> {
    return this.call("/webhook/delivery/resend", { deliveryId });
  }

  async *#each<P extends Lists, Row>(
    path: P,
    filter: Filter<P>,
    pageSize: number,
    rows: (page: AnswerOf<P>) => readonly Row[],
  ): AsyncGenerator<Row> {
    let pager: Schemas["Pager"] | undefined = { pageSize };
    while (pager) {
      const page: AnswerOf<P> = await this.call(path, { ...filter, pager } as RequestOf<P>);
      yield* rows(page);
      pager = page.pager.next ? { pageSize, after: page.pager.next } : undefined;
    }
  }
}

function given(value: string | undefined, variable: string, argument: string): string {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  const found = value || process?.env?.[variable];
  if (!found) throw new NotConfigured(`${variable} is not set, nor was ${argument} given`);
  return found;
}
