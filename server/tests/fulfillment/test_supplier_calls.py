"""A call that waits for nothing is answered at once; one that waits is broken off."""

import asyncio

from dealer_server.fulfillment.supplier_calls import at_once
from dealer_server.suppliers.contract import Outcome, Pending, Unknown


async def test_a_call_that_waits_for_nothing_gives_its_outcome():
    async def answers() -> Outcome:
        return Pending(1)

    assert at_once(answers()) == Pending(1)


async def test_a_call_that_waits_is_broken_off():
    ended = list[str]()

    async def waits() -> Outcome:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("broken off")
        return Unknown("never")

    assert at_once(waits()) is None
    assert ended == ["broken off"]
