"""The page Refunds of a dealer: what was asked for, what came of it, and why one was rejected."""

import csv
import io
import json
import re
from html import unescape

from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.buying import acts_of
from support.console.operator_pages import text_of
from support.money.refunds import bought, refund, settled

REASON = "used, says the <network>"


def row_of(page: str, refund_no: str) -> str:
    return next((row for row in page.split("<tr") if refund_no in row), "")


async def rejected(dealer: ApiClient, admin: Browser) -> str:
    """The refundNo of one that an operator has rejected."""
    order = await bought(dealer, "TEST-REVIEW", quantity=2)
    number = (await refund(dealer, order)).data["refundNo"]
    await admin.post(f"/console/refunds/{number}/reject", {"reason": REASON})
    await settled(dealer, order)
    return number


async def test_a_dealer_sees_its_refunds_with_state_and_reason(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
) -> None:
    theirs = (await refund(stranger, await bought(stranger))).data["refundNo"]
    order = await bought(dealer)
    done = (await refund(dealer, order, remark="the trip was cancelled")).data["refundNo"]
    waiting = (await refund(dealer, await bought(dealer, "TEST-REVIEW"))).data["refundNo"]
    no = await rejected(dealer, admin)
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        page = (await one.get("/console/refunds")).text
        assert theirs not in page and 'href="/console/refunds" aria-current="page"' in page
        parts = [page.index(text) for text in (">Open<", f'title="{waiting}"', ">Settled<", f'title="{done}"')]
        assert parts == sorted(parts) and "2 settled refunds" in page, "those that wait stand first, in one place"
        first = row_of(page, done)
        for text in (order["orderNo"], order["transactionId"], "TEST-OK", "Refunded", "1.80", "the trip was cancelled"):
            assert text in first, text
        assert "In review" in row_of(page, waiting)
        assert "Rejected" in row_of(page, no) and REASON in unescape(row_of(page, no)) and REASON not in page
        assert 'title="REJECTED"' in row_of(page, no) and "× 2" in row_of(page, no)
        today = f"{service.database.clock.now():%Y-%m-%d}"
        for query, numbers in (
            (f"q={order['orderNo']}", [done]),
            (f"q={order['transactionId']}", [done]),
            (f"q={waiting}", [waiting]),
            ("q=nothing", []),
            (f"q={theirs}", []),
            (f"from={today}&to={today}", [done, waiting, no]),
            (f"from={today}&status=REVIEW", [waiting]),
            (f"q={order['orderNo']}&status=REVIEW", []),
            ("to=2020-01-01", []),
        ):
            some = (await one.get(f"/console/refunds?{query}")).text
            assert [found for found in (done, waiting, no) if row_of(some, found)] == numbers, query
        inbox = (await one.get("/console/notices?kind=money")).text
        assert "Refund rejected: 3.60\u00a0USD" in inbox and inbox.count("Refund ") == 1
        path = re.search(r'href="(/console/notices/\d+)"', inbox)
        assert path and REASON in unescape((await one.get(path[1])).text)
        for state, numbers in (("REFUNDED", [done]), ("REVIEW", [waiting]), ("REFUNDING", []), ("REJECTED", [no])):
            some = (await one.get(f"/console/refunds?status={state}")).text
            assert [found for found in (done, waiting, no) if found in some] == numbers, state


async def test_a_refund_in_review_is_so_on_every_page(service: Service, dealer: ApiClient) -> None:
    order = await bought(dealer, "TEST-REVIEW")
    await refund(dealer, order)
    profile = order["items"][0]["profiles"][0]["profileId"]
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        for page in ("/console/profiles", f"/console/profiles/{profile}", f"/console/orders/{order['orderNo']}"):
            assert ">Refund in review</span>" in (await one.get(page)).text, page


async def test_what_a_supplier_says_is_not_told(service: Service, dealer: ApiClient) -> None:
    order = await bought(dealer, "TEST-REJECT")
    await refund(dealer, order)
    await settled(dealer, order)
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        rows = list(csv.DictReader(io.StringIO((await one.get("/console/refunds.csv")).text)))
    assert [(row["status"], row["reason"]) for row in rows] == [
        ("REJECTED", "the supplier does not take the eSIM back")
    ]


async def test_refunds_are_ordered_and_taken_as_a_file(service: Service, dealer: ApiClient, admin: Browser) -> None:
    numbers = [(await refund(dealer, await bought(dealer))).data["refundNo"] for _ in range(3)]
    no = await rejected(dealer, admin)
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        for path, expected in (("", [*numbers, no][::-1]), ("?sort=created", [*numbers, no])):
            page = (await one.get(f"/console/refunds{path}")).text
            assert re.findall(r'title="(R\d+)"', page) == expected
        page = (await one.get("/console/refunds?status=REJECTED")).text
        assert 'href="/console/refunds.csv?status=REJECTED"' in page
        whole = list(csv.DictReader(io.StringIO((await one.get("/console/refunds.csv")).text)))
        [row] = csv.DictReader(io.StringIO((await one.get("/console/refunds.csv?status=REJECTED")).text))
    assert [one["refundNo"] for one in whole] == [no, *numbers[::-1]]
    assert (row["refundNo"], row["status"], row["amount"], row["credited"]) == (no, "REJECTED", "3.60", "0.00")
    assert row["reason"] == REASON and row["packages"] == "TEST-REVIEW x2" and row["settleTime"]
    acts = await acts_of(service, dealer, "refunds.export")
    assert {"status": "REJECTED"} in [json.loads(act.detail) for act in acts]


async def test_automatic_refunds_are_told_apart(service: Service, dealer: ApiClient) -> None:
    await bought(dealer, "TEST-FAIL")
    await refund(dealer, await bought(dealer, quantity=2))
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        page = text_of((await one.get("/console/refunds")).text)
        dated = text_of((await one.get("/console/refunds?from=2020-01-01")).text)
    assert "5.40 USD refunded in all Request a refund" in page and "5.40 USD refunded Request a refund" in dated
    assert "Could not be delivered Automatic" in page
