"""kill -9 of `serve` while a file of orders is placed: it is continued, and each line is bought once."""

import httpx2
import pytest

from support.api_client import running_service
from support.browser import signed_in
from support.console.buying import bought_in_bulk, bulk_form, order_count, uploaded
from support.processes import environment, running

KILLED = -9
LINES = 300


@pytest.mark.parametrize(
    ("point", "mail"),
    [
        ("bulk.confirmed", ""),
        ("order.fast.committed", ""),
        ("order.fast.before:2", ""),
        ("order.written", "ann@example.com"),
        ("order.committed", "ann@example.com"),
    ],
)
async def test_a_file_that_was_cut_short_is_continued(database_url: str, point: str, mail: str):
    """And each buyer is mailed once."""
    env = environment(database_url, DEALER_MAILBOX="true")
    async with running_service(database_url, worker=False, mailbox=True) as service:
        created = await service.tenant(balance="1000", qps=0)
        async with service.client(created) as dealer, signed_in(service, "admin", dealer.tenant_id) as clerk:
            page = await uploaded(clerk, *[f"TEST-OK,1,,,{line},{mail}" for line in range(LINES)])
            async with running("serve", "--port", "0", env=env, kill_at=point) as serve:
                clerk.url = await serve.ready()
                fields = await bulk_form(clerk, page)
                with pytest.raises(httpx2.HTTPError):
                    await clerk.send(f"{page}/buy", fields, Referer=f"{clerk.url}{page}")
                assert await serve.ended() == KILLED, serve.said
            clerk.url = service.url
            before = await order_count(dealer)
            assert before < LINES
            shown = await bought_in_bulk(clerk, page)
            assert f"{LINES - before} orders placed" in shown
            assert await order_count(dealer) == LINES
            assert (await dealer.post("/account/balance")).data["balance"] == f"{1000 - LINES * 1.8:.2f}"
            assert await service.audit() == []
            async with service.database.connection() as connection:
                sent = await connection.fetch(
                    "SELECT profile_id FROM buyer_mail WHERE tenant_id = $1", dealer.tenant_id
                )
            assert len({row["profile_id"] for row in sent}) == len(sent) == (LINES if mail else 0)
