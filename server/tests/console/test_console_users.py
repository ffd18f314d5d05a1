"""The list of users: of more than a page of people each one is found, and changed."""

import re
import secrets

from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.operations.users import accounts
from support.api_client import ApiClient, Service
from support.browser import PASSWORDS, Browser, signed_in


async def crowd(service: Service, tenant_id: int, count: int) -> list[str]:
    """Their userIds, in the order in which they came."""
    prefix = secrets.token_hex(4)
    made = [
        await accounts.create(
            service.database, PASSWORDS, tenant_id, f"{prefix}-{number}", "finance", "test", "a password"
        )
        for number in range(count)
    ]
    return [str(one.user_id) for one in made]


def shown(text: str) -> list[str]:
    return re.findall(r'<tr id="user-(\d+)"', text)


async def paged(one: Browser, path: str) -> list[list[str]]:
    """The userIds of each page, from the first to the last."""
    pages: list[list[str]] = []
    while path:
        page = await one.get(path)
        assert page.status_code == 200
        pages.append(shown(page.text))
        following = re.search(r'rel="next" href="([^"]+)"', page.text)
        path = following[1].replace("&amp;", "&") if following else ""
    return pages


async def test_of_more_than_a_page_of_people_each_is_on_one_page(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    [other] = await crowd(service, stranger.tenant_id, 1)
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        expected = [str(one.user_id), *await crowd(service, dealer.tenant_id, 2 * PAGE_SIZE)]
        pages = await paged(one, "/console/users")
        assert pages == [expected[:PAGE_SIZE], expected[PAGE_SIZE : 2 * PAGE_SIZE], expected[2 * PAGE_SIZE :]]
        foreign = await one.get(f"/console/users?dealer={stranger.tenant_id}")
        assert shown(foreign.text) == expected[:PAGE_SIZE] and other not in shown(foreign.text)
        await one.post(f"/console/users/{expected[-1]}", {"role": "finance", "status": "DISABLED"})
        last = await one.get(f"/console/users?before={expected[-2]}")
        assert shown(last.text) == expected[-1:] and "DISABLED" in last.text


async def test_an_admin_in_use_without_two_factor_sign_in_is_marked(service: Service, dealer: ApiClient):
    [idle] = await crowd(service, dealer.tenant_id, 1)
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        await accounts.change(service.database, int(idle), int(dealer.tenant_id), "admin", "ACTIVE", "test")
        page = (await one.get("/console/users")).text
        rows = {row[1]: row[2] for row in re.finditer(r'<tr id="user-(\d+)">(.*?)</tr>', page, re.DOTALL)}
        own = rows[str(one.user_id)]
        assert "state-warning" in own and ">Turn on</a>" in own
        assert "state-warning" not in rows[idle], "who never signed in has nothing to protect yet"


async def test_an_operator_comes_to_everybody_operators_first(service: Service, admin: Browser, dealer: ApiClient):
    theirs = await crowd(service, dealer.tenant_id, PAGE_SIZE + 1)
    everybody = [user_id for page in await paged(admin, "/console/users") for user_id in page]
    assert everybody == [str(one.user_id) for one in await accounts.list_users(service.database)]
    assert everybody.index(str(admin.user_id)) < everybody.index(theirs[0])


async def test_an_operator_looks_at_one_dealers_people_and_makes_another(
    service: Service, admin: Browser, dealer: ApiClient, stranger: ApiClient
):
    theirs = await crowd(service, dealer.tenant_id, 2)
    await crowd(service, stranger.tenant_id, 1)
    page = (await admin.get(f"/console/users?dealer={dealer.tenant_id}")).text
    assert shown(page) == theirs
    assert page.count(f' · {dealer.tenant_id}"') == 2, "in the filter and in the form"
    refused = await admin.refused(
        "/console/users", {"name": "two words", "role": "finance", "tenant": str(dealer.tenant_id)}
    )
    assert f'value="{dealer.tenant_id}"' in refused.text
    assert "All users" in (await admin.get("/console/users?dealer=999999")).text


async def test_people_are_found_by_a_part_of_their_name(service: Service, admin: Browser, dealer: ApiClient):
    theirs = await crowd(service, dealer.tenant_id, 2)
    page = (await admin.get(f"/console/users?dealer={dealer.tenant_id}")).text
    name = re.findall(r"<bdi>([0-9a-f]{8})-1</bdi>", page)[0]
    assert shown((await admin.get(f"/console/users?q={name.upper()}")).text) == theirs
    assert shown((await admin.get(f"/console/users?q={name}-1")).text) == theirs[1:]
    assert "No users match" in (await admin.get("/console/users?q=nobody-is-called-so")).text
    assert page.count("Never signed in") == 2


async def test_nobody_disables_themselves(service: Service, dealer: ApiClient):
    await crowd(service, dealer.tenant_id, 1)
    async with (
        signed_in(service, "admin", dealer.tenant_id) as one,
        signed_in(service, "admin", dealer.tenant_id) as two,
    ):
        page = (await one.get("/console/users")).text
        assert f'action="/console/users/{two.user_id}"' in page
        assert f'action="/console/users/{one.user_id}"' not in page
        for change in ({"role": "admin", "status": "DISABLED"}, {"role": "finance", "status": "ACTIVE"}):
            refused = await one.refused(f"/console/users/{one.user_id}", change)
            assert "changed by another admin" in refused.text
        await two.post(f"/console/users/{one.user_id}", {"role": "finance", "status": "ACTIVE"})
        assert (await one.get("/console/users")).status_code != 200
