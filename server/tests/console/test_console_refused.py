"""Those who help dealers find a refused call by what the dealer tells them of it, and see what the dealer sees."""

import asyncio

import pytest

from dealer_server.operations.users.accounts import OPERATOR_ROLES
from support.api_client import ApiClient, Reply, Service
from support.browser import signed_in
from support.patience import PATIENCE

MAY = ("admin", "support")


async def refused(service: Service, dealer: ApiClient) -> Reply:
    """A call with a wrong signature, once it is in the log."""
    answer = await dealer.post("/health", **{"X-Signature": "0" * 64})
    async with asyncio.timeout(PATIENCE), service.database.connection() as connection:
        while not await connection.fetchval(
            "SELECT EXISTS (SELECT FROM refused_call WHERE trace_id = $1)", answer.headers["X-Trace-Id"]
        ):
            await asyncio.sleep(0.02)
    return answer


async def test_calls_that_were_refused_stand_in_the_order_of_time(service: Service, dealer: ApiClient):
    await refused(service, dealer)
    await refused(service, dealer)
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        page = (await one.get("/console/api-log")).text
        lately, _, latest = page.partition("Latest calls")
        assert [part.count('data-href="/console/api-log/1"') for part in (lately, latest)] == [1, 1]
        assert page.count("Signature wrong") >= 2 and "Signature wrong" in page.partition(">Today, ")[2]
        assert ">POST /health</td>" in page and 'result=refused">2</a>' in page, "how, and where all of them are"
        assert "All from " in page and dealer.app_key[-4:] in page, "the caller that all have is named once"
        page = (await one.get("/console/api-log?result=refused")).text
        assert "Signature wrong" in page.partition(">Today, ")[2]


@pytest.mark.parametrize("name", ["X-Trace-Id", "RT-RequestID"])
async def test_a_search_leads_to_the_refused_call_with_this_id(service: Service, dealer: ApiClient, name: str):
    answer = await refused(service, dealer)
    async with signed_in(service, "support") as one:
        found = await one.get(f"/console/search?q={answer.headers[name]}")
        page = await one.get(found.headers["location"])
    assert found.headers["location"].startswith(f"/console/dealers/{dealer.tenant_id}/api-log/")
    assert page.status_code == 200
    assert "101003" in page.text and "Expected string to sign" in page.text and answer.headers[name] in page.text
    assert dealer.app_secret not in page.text


@pytest.mark.parametrize("role", OPERATOR_ROLES)
async def test_bodies_of_refused_calls_are_for_those_who_may_see_activation_codes(
    service: Service, dealer: ApiClient, role: str
):
    answer = await refused(service, dealer)
    log = f"/console/dealers/{dealer.tenant_id}/api-log"
    status = 200 if role in MAY else 403
    async with signed_in(service, role) as one:
        assert (await one.get(log)).status_code == status
        assert (await one.get(f"{log}/1")).status_code == status
        assert (await one.post(f"{log}/1/compare", {"theirs": "mine"})).status_code == status
        found = await one.get(f"/console/search?q={answer.headers['X-Trace-Id']}")
        assert (log in found.headers.get("location", "")) == (role in MAY)
        assert (log in (await one.get(f"/console/dealers/{dealer.tenant_id}")).text) == (role in MAY)


async def test_a_dealer_opens_no_log_by_the_operators_way(service: Service, dealer: ApiClient, stranger: ApiClient):
    await refused(service, dealer)
    for client in (dealer, stranger):
        async with signed_in(service, "admin", client.tenant_id) as one:
            for path in ("", "/1"):
                assert (await one.get(f"/console/dealers/{dealer.tenant_id}/api-log{path}")).status_code == 404


async def test_a_log_of_nobody_and_a_call_that_left_it_are_not_there(service: Service, dealer: ApiClient):
    async with signed_in(service, "admin") as one:
        for path in (f"{dealer.tenant_id}/api-log/999", f"{dealer.tenant_id}/api-log/x", "x/api-log", "999999/api-log"):
            assert (await one.get(f"/console/dealers/{path}")).status_code == 404
