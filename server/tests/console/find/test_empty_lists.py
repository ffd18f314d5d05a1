"""A list of nothing leads to what fills it."""

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in


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
            for absent in ('class="filter-bar"', '<div class="list-tabs"', "Export CSV"):
                assert absent not in text.partition('<template id="palette')[0], (path, absent)
        for path in ("/console/orders?status=FAILED", "/console/profiles?status=FAILED", "/console/wallet?type=TOPUP"):
            assert 'class="filter-bar"' in (await one.get(path)).text, "a filter can be taken back"
    async with signed_in(service, "developer", int(made.tenant_id)) as one:
        for path in ("/console/wallet", "/console/wallet/topups"):
            assert 'action="/console/wallet/topups"' not in (await one.get(path)).text


TURNED = "?from=2026-11-20&to=2026-11-10"


async def test_days_the_wrong_way_round_are_said_in_the_form(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    """A list would only be empty; a report would be of other days."""
    said = "From is after To: the first day must not be after the last"
    statement, faults = f"/console/dealers/{dealer.tenant_id}/statement", list[str]()
    await dealer.order()
    lists = ("/console/orders", "/console/profiles", "/console/refunds", "/console/webhooks")
    async with signed_in(service, "admin", dealer.tenant_id) as owner:
        for one, paths in (
            (admin, (*lists, "/console/audit", f"/console/dealers/{dealer.tenant_id}/api-log", statement)),
            (owner, (*lists, "/console/api-log", "/console/wallet", "/console/wallet/topups")),
        ):
            for path in paths:
                page = (await one.get(f"{path}{TURNED}")).text
                if '<details class="filter-days" open>' not in page or f'id="field-from-error">{said}' not in page:
                    faults.append(path)
                assert said not in (await one.get(f"{path}?from=2026-11-20&to=2026-11-20")).text, path
    assert faults == []
    assert "the first day must not be after the last" in (await admin.get(f"/console/reports{TURNED}")).text
