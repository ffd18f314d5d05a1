"""`dealer-server backup check`: a dump is restored beside the database, and said to be good only where it is."""

import json
import subprocess
from pathlib import Path

import asyncpg

from dealer_server.db import scratch
from dealer_server.dev.embedded import programs
from support.api_client import Service
from support.processes import Done, environment, run

PROGRAMS = programs.find(Path(), None).bin
"""Those of the PostgreSQL that tests run on."""


async def check(database_url: str, *arguments: object, **changed: str) -> Done:
    env = environment(database_url, **changed) | {"PATH": str(PROGRAMS)}
    return await run("backup", "check", *map(str, arguments), env=env)


def dumped(database_url: str, file: Path) -> Path:
    done = subprocess.run([PROGRAMS / "pg_dump", "--format=custom", f"--file={file}", database_url])
    assert done.returncode == 0
    return file


async def databases(database_url: str) -> list[str]:
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch("SELECT datname FROM pg_database WHERE datname LIKE 'backup\\_check\\_%'")
        return [row["datname"] for row in rows]
    finally:
        await connection.close()


async def test_a_backup_is_good_only_if_its_keys_open_it_and_its_audit_finds_nothing(
    service: Service, database_url: str, tmp_path: Path
):
    async with service.client(await service.tenant(balance="100", qps=0)) as dealer:
        await dealer.delivered((await dealer.order()).data["orderNo"])
    good = await check(database_url, dumped(database_url, tmp_path / "good"), "--json")
    assert good.status == 0, good.err
    report = json.loads(good.out)
    assert report["ok"] and report["orders"] == 1 and report["canaries"] >= 2 and not report["problems"]
    assert set(report["seconds"]) == {"restore", "schema", "sealingKeys", "audit"}
    other = f"other:{'A' * 43}="
    done = await check(database_url, tmp_path / "good", DEALER_SEALING_KEYS=other)
    assert done.status == 1 and "PROBLEM       DEALER_SEALING_KEYS does not open it: the data key is sealed" in done.out

    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE wallet SET balance = balance + 1 WHERE tenant_id = $1", dealer.tenant_id)
    spoiled = dumped(database_url, tmp_path / "spoiled")
    await connection.execute("UPDATE wallet SET balance = balance - 1 WHERE tenant_id = $1", dealer.tenant_id)
    await connection.close()
    done = await check(database_url, spoiled, "--json")
    assert done.status == 1 and "A1" in json.loads(done.out)["violated"], done.out

    whole = (tmp_path / "good").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    for file, words in ((tmp_path / "half", "pg_restore refuses"), (Path(__file__), "a dump by `pg_dump")):
        done = await check(database_url, file)
        assert done.status == 1 and words in done.err and len(done.err.splitlines()) == 1, done.err
    assert await databases(database_url) == [], "scratch databases are left behind"


async def test_one_of_a_dump_and_a_restored_database_is_named(database_url: str):
    for arguments in ((), ("file", "--restored", database_url)):
        done = await run("backup", "check", *arguments, env=environment(database_url))
        assert done.status == 1 and "one of a dump and --restored is expected" in done.err


def test_no_password_is_shown_to_other_users_of_the_machine():
    address = "postgresql://u:p%40ss@h:5432/d?x=y"
    assert scratch._without_password(address) == ("postgresql://u@h:5432/d?x=y", "p@ss")
    assert scratch._without_password("postgresql://u@h/d") == ("postgresql://u@h/d", "")
