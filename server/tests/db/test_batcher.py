"""Which items a batch takes, and when it runs."""

import asyncio
from collections.abc import Sequence

import pytest

from dealer_server.db.batcher import Batcher


class Runs:
    """Each batch runs until `end` is called."""

    def __init__(self, **bounds: object):
        self.batcher: Batcher[int, int] = Batcher(self._run, **{"bound": 100, **bounds})
        self.sizes: list[int] = []
        self._begun = asyncio.Event()
        self._end = asyncio.Event()

    async def _run(self, items: Sequence[int]) -> Sequence[int]:
        self.sizes.append(len(items))
        self._begun.set()
        await self._end.wait()
        self._end.clear()
        return items

    async def begun(self) -> None:
        await self._begun.wait()
        self._begun.clear()

    def end(self) -> None:
        self._end.set()


async def test_an_item_that_arrives_alone_runs_at_once():
    runs = Runs()
    for number in range(3):
        answer = runs.batcher.submit(number)
        await runs.begun()
        runs.end()
        assert await answer == number
    assert runs.sizes == [1, 1, 1]


@pytest.mark.parametrize("together", [2, 16, 63, 64])
async def test_two_groups_of_callers_take_turns(together: int):
    """However they arrive, each batch answers half of them, who come again while the other half's batch runs."""
    runs, rounds = Runs(), 6
    left = dict.fromkeys(range(together), rounds)

    async def call(number: int) -> None:
        while left[number]:
            left[number] -= 1
            await runs.batcher.submit(number)

    calls = [asyncio.create_task(call(number)) for number in left]
    for _ in range(rounds):
        await runs.begun()
        runs.end()
    for call_again in calls:
        call_again.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert set(runs.sizes[:rounds]) <= {together // 2, (together + 1) // 2}


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [({"bound": 100}, [4, 4]), ({"bound": 3}, [3, 3, 2]), ({"bound": 50, "weight": lambda item: 20}, [2, 2, 2, 2])],
)
async def test_a_batch_stays_within_its_bounds(bounds: dict[str, object], sizes: list[int]):
    runs = Runs(**bounds)
    answers = [runs.batcher.submit(number) for number in range(8)]
    for _ in sizes:
        await runs.begun()
        runs.end()
    assert await asyncio.gather(*answers) == list(range(8))
    assert runs.sizes == sizes


async def test_enough_items_do_not_wait_for_the_interval():
    runs = Runs(interval_seconds=3600, enough=3)
    first = runs.batcher.submit(0)
    await runs.begun()
    runs.end()
    await first
    others = [runs.batcher.submit(number) for number in (1, 2, 3)]
    await runs.begun()
    runs.end()
    assert await asyncio.gather(*others) == [1, 2, 3]
    assert runs.sizes == [1, 3]


async def test_items_that_arrive_within_the_interval_form_one_batch():
    runs = Runs(interval_seconds=0.2)
    first = runs.batcher.submit(0)
    await runs.begun()
    runs.end()
    await first
    others = []
    for number in (1, 2, 3):
        others.append(runs.batcher.submit(number))
        await asyncio.sleep(0)
    await runs.begun()
    runs.end()
    assert await asyncio.gather(*others) == [1, 2, 3]
    assert runs.sizes == [1, 3]
