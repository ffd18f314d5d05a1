"""A page below a list says where it stands, by links to what is above it."""

import re

from support.api_client import ApiClient, Service
from support.browser import signed_in
from support.money.refunds import bought


async def test_pages_below_a_list_lead_back_to_it(service: Service, dealer: ApiClient) -> None:
    order = await bought(dealer)
    number, profile = order["orderNo"], order["items"][0]["profiles"][0]["profileId"]
    above = {
        f"/console/orders/{number}": ["/console/orders"],
        f"/console/orders/{number}/print": ["/console/orders", f"/console/orders/{number}"],
        f"/console/profiles/{profile}": ["/console/profiles"],
        "/console/catalogue/TEST-OK": ["/console/catalogue"],
        "/console/bulk": [],
        "/console/wallet/topups": [],
        f"/console/credentials/{dealer.app_key}/secret": ["/console/credentials"],
        "/console/account/totp": ["/console/account"],
        "/console/orders": [],
    }
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        for path, links in above.items():
            trail = (await one.get(path)).text.partition('<nav class="trail"')[2].partition("</nav>")[0]
            assert re.findall(r'<a href="([^"]+)"', trail) == links, path
        page = (await one.get(f"/console/orders/{number}")).text
        assert "<h1>TEST-OK 1 GB 7 days</h1>" in page and f"<code>{order['transactionId']}</code>" in page
        assert f'<span class="mono small text-nowrap">{number}</span>' in page
