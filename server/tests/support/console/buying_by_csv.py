"""How somebody buys three eSIMs from a file and opens the page of one for its traveller."""

from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from support.chromium import barriers

FILE = "packageCode,quantity,periodNum,remark,reference\n" + "".join(
    f"TEST-OK,1,,Booking {number},B-{number}\n" for number in (1, 2, 3)
)


async def buys_three_by_csv(page: Page, url: str, folder: Path, amount: str, scripts: bool = True) -> None:
    """From the catalogue to the orders. `amount`: of all three."""
    file = folder / "bookings.csv"
    file.write_text(FILE)
    await page.goto(f"{url}/console/catalogue")
    if await (menu := page.get_by_role("button", name="Menu", exact=True)).is_visible():
        await menu.click()
    await page.get_by_role("link", name="Buy by CSV").first.click()
    await page.get_by_label("CSV file").set_input_files(file)
    await page.get_by_role("button", name="Check prices").click()
    main = page.locator("#main")
    await expect(main).to_contain_text(amount)
    assert not scripts or await barriers(page) == []
    await page.get_by_role("button", name="Buy 3 orders").click()
    await expect(page.get_by_role("status").first).to_contain_text("3 orders placed")
    while not scripts and "3 of 3 orders" not in await main.inner_text():
        await page.reload()  # with scripts the page renews itself
    await expect(main).to_contain_text("3 of 3 orders")


async def opens_the_page_of_one(page: Page) -> Page:
    """From the results of the file; the install page, in its window."""
    main = page.locator("#main")
    await main.locator("tbody a").first.click()
    await page.wait_for_url("**/console/orders/D*")
    await main.locator('#esims a[href^="/console/profiles/"]').first.click()
    await page.wait_for_url("**/console/profiles/*")
    async with page.context.expect_page() as opening:
        await main.get_by_role("link", name="Open", exact=True).click()
    install: Any = await opening.value
    await install.wait_for_load_state()
    assert "/i/" in install.url
    await expect(install.locator("body")).to_contain_text("Install your eSIM")
    return install
