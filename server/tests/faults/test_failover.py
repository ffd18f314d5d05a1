"""The leader of two PostgreSQL freezes and the other is promoted: calls are answered meanwhile, nothing acknowledged is
lost and nothing is placed twice, and the old leader gets no connection when it thaws."""

import signal
from urllib.parse import quote, urlsplit

from dealer_server.db.cluster import Host, cluster_of, hosts_of
from dealer_server.db.connection import connect
from support import trading
from support.faults.postgres_machine import Machine, Watch, connected
from support.processes import environment, running

EVENTS = {"metrics_served", "database_lost", "database_back", "outcome_unknown"}


def several(url: str, *machines: Machine) -> str:
    """The database of this name on whichever of the machines leads."""
    folders = quote(",".join(str(machine.server.socket_dir) for machine in machines), safe=",/")
    ports = ",".join("5432" for _ in machines)
    return f"postgresql://esim@{urlsplit(url).path}?host={folders}&port={ports}&target_session_attrs=read-write"


async def test_a_frozen_leader_is_left_for_the_promoted_one_and_nothing_is_lost(machine: Machine):
    async with machine.database() as url, machine.standby() as standby:
        dsn = several(url, machine, standby)
        env = environment(dsn)
        async with (
            trading.opened(dsn) as workload,
            running("serve", "--port", "0", env=env) as serve,
            running("work", env=env) as work,
        ):
            address, buyers, processes = await serve.ready(), workload.buyers, (serve, work)
            await work.ready()  # one that is still starting loses nothing: it waits for a leader
            async with buyers.buying(address):
                await buyers.next_acknowledged()
                with machine.frozen():
                    for process in processes:
                        await process.says("database_lost")
                    ready = await buyers.clients[0].http.get(f"{address}/readyz")
                    assert (ready.status_code, ready.json()["reasons"]) == (503, ["database: the connection is lost"])
                    refused = await buyers.attempt(buyers.new(), address)
                    assert refused is not None and refused.code == "900001", "nobody leads yet"
                    await standby.promote()
                    for process in processes:
                        await process.says("database_back")
                    for _ in range(20):
                        await buyers.next_acknowledged()
                for _ in range(20):
                    await buyers.next_acknowledged()
            cluster = cluster_of(dsn)
            assert cluster is not None
            await cluster.look()  # as the processes did: this one's connections are to the old leader
            await workload.all_is_well(address)
            cluster_of.cache_clear()
            connection = await connect(dsn)
            folder = await connection.fetchval("SHOW data_directory")
            await connection.close()
            assert folder == str(standby.server.data / "postgres"), "the old leader is first, and still takes writes"
            for process in processes:
                process.signal(signal.SIGTERM)
                assert await process.ended() == 0
                assert "Traceback" not in process.said
                told = process.events
                assert (told["database_lost"], told["database_back"]) == (1, 1), process.said
                assert set(told) <= EVENTS, told


def test_hosts_are_read_as_asyncpg_reads_them():
    for dsn, hosts in {
        "postgresql://u:p@one:1,two/db": [Host("one", 1), Host("two", 5432)],
        "postgresql://u@[::1]:1,[fe80::2]/db": [Host("::1", 1), Host("fe80::2", 5432)],
        "postgresql://u@one,two/db?port=7": [Host("one", 7), Host("two", 7)],
        "postgresql://u@/db?host=/a,/b&port=1,2": [Host("/a", 1), Host("/b", 2)],
        "postgresql://localhost/db": [Host("localhost", 5432)],
    }.items():
        assert hosts_of(dsn) == hosts


async def test_a_process_that_starts_while_no_host_leads_says_so_and_starts_once_one_does(machine: Machine):
    async with machine.database() as url, machine.standby() as standby:
        dsn = several(url, machine, standby)
        with machine.frozen():
            async with running("work", env=environment(dsn), ready=False) as work:
                await work.says("waiting_for_database")
                assert "no host leads" in work.said
                await standby.promote()
                await work.ready()
                assert work.events["database_lost"] == 0


async def test_a_process_whose_leader_freezes_in_the_middle_of_its_start_says_so_and_ends(machine: Machine):
    """Whoever started it starts it again; nobody waits for the frozen one."""
    async with machine.database() as url, machine.standby() as standby, connected(url) as holder:
        dsn = several(url, machine, standby)
        await holder.execute("BEGIN; LOCK TABLE data_key IN ACCESS EXCLUSIVE MODE")
        async with connected(url) as seeing, running("work", env=environment(dsn), ready=False) as work:
            await Watch(seeing).somebody_waits("relation")
            with machine.frozen():
                await work.says("database_lost")
                await standby.promote()
                assert await work.ended() == 1
            assert "Traceback" not in work.said and "the database" in work.said.splitlines()[-1], work.said
