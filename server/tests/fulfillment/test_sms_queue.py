"""SMS at a supplier of the RT family, which knows no repeat: whatever becomes of a call, no text is sent twice."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from support.patience import PATIENCE
from support.suppliers.purchases import PurchaseFixture, purchase_fixture
from support.suppliers.sms import SMS, TEXT, new, rows, sent, tables_with


@pytest.fixture
async def fixture(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as one:
        yield one
        assert await one.service.audit() == []


async def installed(fixture: PurchaseFixture) -> dict[str, Any]:
    """A profile bought at the near upstream, once it was reported to be on a device."""
    order = await fixture.client.delivered((await fixture.client.order()).data["orderNo"])
    esim = fixture.near.book.esims()[-1]
    esim.smdpStatus = "ENABLED"
    await fixture.near.push(fixture.events + fixture.setup.events["rt:near"], fixture.near.event("SMDP_EVENT", esim))
    order = await fixture.until(
        order["orderNo"], lambda one: one["items"][0]["profiles"][0]["lifecycleStatus"] == "ACTIVATED"
    )
    return order["items"][0]["profiles"][0]


async def tried(fixture: PurchaseFixture) -> None:
    """Once the supplier was asked and the SMS waits."""
    async with asyncio.timeout(PATIENCE):
        while await rows(fixture.service, "SELECT 1 FROM sms WHERE claims = 0 OR claim IS NOT NULL"):
            await asyncio.sleep(0.02)


async def test_an_sms_is_sent_once_by_the_name_that_the_supplier_gave_the_esim(fixture: PurchaseFixture):
    call = new(await installed(fixture))
    first = (await fixture.client.post(SMS, call)).data
    assert (first["status"], first["duplicate"]) == ("PENDING", False)
    done = (await sent(fixture.client, call)).data
    assert done == first | {"status": "SENT", "duplicate": True}
    assert fixture.near.sms == [(fixture.near.book.esims()[-1].esimTranNo, TEXT)]
    assert len(fixture.near.calls_of("esim/sendSms")) == 1


async def test_what_the_supplier_refuses_was_surely_not_sent_and_its_words_are_not_repeated(
    fixture: PurchaseFixture, capfd: pytest.CaptureFixture[str]
):
    profile = await installed(fixture)
    fixture.near.book.esims()[-1].smdpStatus = "DISABLED"
    done = (await sent(fixture.client, new(profile))).data
    assert (done["status"], done["failReason"]) == ("FAILED", "NOT_SENT")
    assert await rows(fixture.service, "SELECT detail FROM sms") == [("esim/sendSms: refused with 200002",)]
    logged = capfd.readouterr()
    assert "sms_not_sent" in logged.out + logged.err and TEXT not in logged.out + logged.err
    assert await tables_with(fixture.service, TEXT) == []


@pytest.mark.parametrize(
    ("fault", "count"),
    [("LOST_BEFORE", 0), ("500_BEFORE", 0), ("LOST_AFTER", 1), ("500_AFTER", 1), ("HTML_AFTER", 1), ("HALF_AFTER", 1),
     ("BUSY_AFTER", 1)],
)  # fmt: skip
async def test_a_lost_answer_is_no_reason_to_send_it_again(fixture: PurchaseFixture, fault: str, count: int):
    fixture.near.fault("esim/sendSms", fault)
    done = (await sent(fixture.client, new(await installed(fixture)))).data
    assert (done["status"], done["failReason"]) == ("FAILED", "UNKNOWN")
    assert len(fixture.near.calls_of("esim/sendSms")) == 1 and len(fixture.near.sms) == count


async def test_what_was_surely_not_sent_is_tried_again(fixture: PurchaseFixture):
    fixture.near.fault("esim/sendSms", "429")
    call = new(await installed(fixture))
    await fixture.client.post(SMS, call)
    await tried(fixture)
    assert (await fixture.client.post(SMS, call)).data["status"] == "PENDING"
    await rows(fixture.service, "UPDATE sms SET due_at = now()")
    assert (await sent(fixture.client, call)).data["status"] == "SENT"
    assert len(fixture.near.sms) == 1


async def test_after_an_hour_it_is_given_up(fixture: PurchaseFixture):
    fixture.near.fault("esim/sendSms", "429")
    call = new(await installed(fixture))
    await fixture.client.post(SMS, call)
    await tried(fixture)
    hour_ago = fixture.service.database.clock.now() - timedelta(minutes=61)
    await rows(fixture.service, "UPDATE sms SET due_at = now(), created_at = $1", hour_ago)
    done = (await sent(fixture.client, call)).data
    assert (done["status"], done["failReason"]) == ("FAILED", "NOT_SENT")
    assert fixture.near.sms == []
