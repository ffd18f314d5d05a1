"""A list of nothing leads to what fills it."""

from support.api_client import Service
from support.browser import signed_in


async def test_a_list_of_nothing_has_the_one_button_that_fills_it(service: Service):
    """No filters, tabs or files of nothing; whoever moves no money is not offered to."""
    made = await service.tenant(balance="0")
    pages = {
        "/console/orders": 'href="/console/catalogue">Catalogue</a>',
        "/console/profiles": 'href="/console/catalogue">Catalogue</a>',
        "/console/refunds": 'href="/console/orders">Orders</a>',
        "/console/wallet": 'action="/console/wallet/topups"',
        "/console/wallet/topups": 'action="/console/wallet/topups"',
    }
    async with signed_in(service, "finance", int(made.tenant_id)) as one:
        for path, button in pages.items():
            text = (await one.get(path)).text
            assert text.count(button) == 1, path
            for absent in ('class="filter-bar"', 'class="list-tabs"', "Export CSV"):
                assert absent not in text.partition('<template id="palette')[0], (path, absent)
        for path in ("/console/orders?status=FAILED", "/console/profiles?status=FAILED", "/console/wallet?type=TOPUP"):
            assert 'class="filter-bar"' in (await one.get(path)).text, "a filter can be taken back"
    async with signed_in(service, "developer", int(made.tenant_id)) as one:
        for path in ("/console/wallet", "/console/wallet/topups"):
            assert 'action="/console/wallet/topups"' not in (await one.get(path)).text
