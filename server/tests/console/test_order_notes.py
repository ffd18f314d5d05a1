"""Notes that operators write down about an order, for each other."""

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import acts, does, fill, see


async def test_operators_read_a_note_in_the_timeline_and_the_dealer_does_not(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    order_no = (await dealer.order()).data["orderNo"]
    page = f"/console/orders/{order_no}"
    assert "The note is kept" in await does(admin, f"{page}/note", note="  Called back <b>twice</b>\nעברית  ")
    async with signed_in(service, "readonly") as reader:
        said = await see(reader, page)
        assert 'lines">Called back &lt;b&gt;twice&lt;/b&gt;\nעברית</div>' in (await reader.get(page)).text
        assert f"Note by console:{admin.name}" in said and "Called back <b>twice</b> עברית" in said
        assert (await fill(reader, f"{page}/note", note="no")).status_code == 403
        assert "Add a note" not in said
    async with signed_in(service, "admin", dealer.tenant_id) as own:
        assert "Called back" not in await see(own, page)
        assert (await fill(own, f"{page}/note", note="mine")).status_code in (403, 404)
    [act] = [act for act in await acts(service, "order.note") if act.tenant_id == dealer.tenant_id]
    assert order_no in act.detail


async def test_a_note_that_cannot_be_is_refused(dealer: ApiClient, admin: Browser) -> None:
    page = f"/console/orders/{(await dealer.order()).data['orderNo']}"
    for note in ("", "   ", "x" * 2_001):
        assert "a note has 1 to 2,000 characters" in await does(admin, f"{page}/note", note=note)
    assert (await fill(admin, "/console/orders/D1/note", note="x")).status_code in (303, 404)
