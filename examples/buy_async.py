"""The same as buy.py with asyncio: one order for each package, all at once."""

import asyncio
import sys
import uuid

from esim_dealer import AsyncDealer, DealerError, Line, Snapshot


async def buy(dealer: AsyncDealer, package_code: str) -> Snapshot:
    order = await dealer.order(f"buy-{uuid.uuid4()}", [Line.of(await dealer.package(package_code))])
    return await dealer.wait_for_delivery(order.order_no, timeout=60)


async def main(package_codes: list[str]) -> None:
    async with AsyncDealer() as dealer:
        for order in await asyncio.gather(*(buy(dealer, code) for code in package_codes)):
            for esim in order.items[0].profiles or ():
                links = (esim.install_urls.ios, esim.install_urls.android) if esim.install_urls else ()
                print(order.order_no, esim.iccid, esim.activation_code, esim.qr_code_url, *links, sep="\n  ")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:] or ["TEST-OK", "DEMO-STOCK"]))
    except DealerError as error:
        sys.exit(str(error))
