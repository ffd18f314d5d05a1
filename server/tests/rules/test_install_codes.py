"""What a phone reads: the QR code by an independent decoder (zbar), and the install links, give the exact code."""

import asyncio
import shutil
from urllib.parse import parse_qs, urlsplit

import pytest

from support.api_client import ApiClient

needs_zbar = pytest.mark.skipif(
    shutil.which("zbarimg") is None, reason="zbar is not installed (apt install zbar-tools)"
)


async def decoded(png: bytes) -> str:
    pipe = asyncio.subprocess.PIPE
    reader = await asyncio.create_subprocess_exec(
        "zbarimg", "--quiet", "--raw", "-Sdisable", "-Sqrcode.enable", "-", stdin=pipe, stdout=pipe
    )
    out, _ = await reader.communicate(png)
    return out.decode().removesuffix("\n")


@needs_zbar
async def test_the_qr_code_of_each_esim_holds_its_exact_activation_code(dealer: ApiClient):
    line = {"packageCode": "TEST-OK", "quantity": 5, "price": "1.80"}
    placed = await dealer.order(items=[line], amount="9.00")
    [item] = (await dealer.delivered(placed.data["orderNo"]))["items"]
    for profile in item["profiles"]:
        answer = await dealer.http.get(profile["qrCodeUrl"], headers={"Accept": "image/png"})
        assert answer.headers["Content-Type"] == "image/png"
        assert await decoded(answer.content) == profile["activationCode"]


async def test_install_links_hold_the_exact_activation_code(dealer: ApiClient):
    placed = await dealer.order()
    [item] = (await dealer.delivered(placed.data["orderNo"]))["items"]
    [profile] = item["profiles"]
    for link in profile["installUrls"].values():
        assert parse_qs(urlsplit(link).query)["carddata"] == [profile["activationCode"]]
