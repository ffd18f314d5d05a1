"""Signing in at the console in a real browser."""

from playwright.async_api import Page, ViewportSize, expect

from support.api_client import Service

PHONE: ViewportSize = {"width": 390, "height": 844}
WORD = "a word for the test"


async def sign_in(page: Page, service: Service, name: str) -> None:
    await page.goto(f"{service.url}/console")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(WORD)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#main")).to_be_visible()
    await expect(page.locator(".side-menu")).to_be_attached()
