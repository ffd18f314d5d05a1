// What the compiler must accept, and what it must refuse; checked, not run.
import { Dealer, Line, verify, type Event, type Snapshot } from "esim-dealer";

export async function accepted(dealer: Dealer): Promise<string> {
  const order: Snapshot = await dealer.order("t-1", [Line.of(await dealer.package("TEST-OK"), 2)]);
  for await (const each of dealer.iterOrders({ orderStatus: "COMPLETED" })) console.log(each.items.length);
  for await (const each of dealer.iterProfiles({ orderNo: order.orderNo })) await dealer.usage({ profileId: each.profile.profileId });
  const event: Event = await verify(new Headers(), new Uint8Array(), "sk", { toleranceSeconds: 10 });
  const health = await dealer.call("/health", {});
  switch (order.orderStatus) {
    case "COMPLETED":
      return health.clientName;
    default: // a later version may have more
      return order.refundAmount ?? event.eventType;
  }
}

export function refused(dealer: Dealer): void {
  // @ts-expect-error money is text
  void dealer.order("t-1", [{ packageCode: "TEST-OK", quantity: 1, price: 1.8 }]);
  // @ts-expect-error an order has a name
  void dealer.query({});
  // @ts-expect-error an eSIM has a name
  void dealer.cancel({});
  // @ts-expect-error no such operation
  void dealer.call("/esim/nothing", {});
  // @ts-expect-error no such filter
  void dealer.packages({ locationcode: "JP" });
  // @ts-expect-error not a body as it was received
  void verify(new Headers(), { orderNo: "D1" }, "sk");
}
