"""Buy one eSIM of each package named, wait for them, and print how to install them.

    python examples/buy.py TEST-OK DEMO-STOCK

The environment names the service and you: ESIM_DEALER_URL, ESIM_DEALER_APP_KEY, ESIM_DEALER_APP_SECRET.
"""

import sys
import uuid

from esim_dealer import Dealer, DealerError, Line


def main(package_codes: list[str]) -> None:
    with Dealer() as dealer:
        health, balance = dealer.health(), dealer.balance()
        print(f"{health.client_name}: {health.status}, {balance.available_balance} {balance.currency} to spend")

        lines = [Line.of(dealer.package(code)) for code in package_codes]
        order = dealer.order(f"buy-{uuid.uuid4()}", lines)  # the same id again would never buy twice
        print(f"order {order.order_no} paid with {order.amount} {order.currency}")

        order = dealer.wait_for_delivery(order.order_no, timeout=60)
        for item in order.items:
            for esim in item.profiles or ():
                print(f"\n{item.package_code}  ICCID {esim.iccid}")
                print(f"  activation code  {esim.activation_code}")
                print(f"  QR code          {esim.qr_code_url}")
                if esim.install_page_url:
                    print(f"  for the buyer    {esim.install_page_url}")
                if esim.install_urls:
                    print(f"  on an iPhone     {esim.install_urls.ios}")
                    print(f"  on Android       {esim.install_urls.android}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or ["TEST-OK", "DEMO-STOCK"])
    except DealerError as error:
        sys.exit(str(error))
