"""`dealer-server` as an operator types it: each command in a process of its own."""

import asyncio
import json
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import httpx2
import psutil
import pytest

from dealer_server.dev import catalogue, embedded
from dealer_server.dev.embedded import postgres as embedded_postgres
from dealer_server.rules.catalogue import importing
from support.api_client import SEALING_KEYS, ApiClient, Service
from support.databases import database_named, postgres_folder
from support.deploy.certificates import self_signed
from support.patience import PATIENCE
from support.processes import Done, Process, environment, run, running
from support.store_fixture import stock_csv

CANARY = "hunter2-canary"
TENANT_TABLES = ("tenant", "credential", "wallet", "ledger_entry", "price", "audit_log")


@pytest.fixture(scope="module")
def env(database_url: str) -> dict[str, str]:
    return environment(database_url)


@pytest.fixture(scope="module")
async def look(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own, which is closed to the user that PostgreSQL runs as."""
    with postgres_folder() as one:
        yield one


async def ok(*arguments: str, env: dict[str, str]) -> str:
    """What a command that succeeds prints."""
    done = await run(*arguments, env=env)
    assert done.status == 0 and not done.err, done
    return done.out


def refusal(done: Done) -> str:
    """The one clear line of a command that was refused."""
    assert done.status in (1, 2) and not done.out, done
    assert done.err.startswith("dealer-server: ") and len(done.err.splitlines()) == 1, done.err
    assert CANARY not in done.err
    return done.err.removeprefix("dealer-server: ")


async def in_turn(calls: list[tuple[tuple[str, ...], dict[str, str]]]) -> list[Done]:
    return [await run(*arguments, env=env) for arguments, env in calls]


async def content(look: asyncpg.Connection) -> list[object]:
    """All that is known of dealers."""
    return [await look.fetch(f"SELECT * FROM {table} ORDER BY 1, 2") for table in TENANT_TABLES]


# migrate


async def test_migrate_twice_and_nothing_else_works_before(postgres: str):
    name = f"cli_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    env = environment(database_named(postgres, name))
    before = [("tenant", "list"), ("tenant", "create", "--name", "x"), ("audit",), ("serve", "--port", "0"), ("work",)]
    for done in await in_turn([(arguments, env) for arguments in before]):
        assert refusal(done) == "the database lacks migration 1: run `dealer-server migrate`"
    first = await ok("migrate", env=env)
    assert first.startswith("applied 0001 ") and first.endswith("the schema is up to date\n")
    assert await ok("migrate", env=env) == "the schema is up to date\n"
    assert await ok("tenant", "list", "--json", env=env) == ""


async def test_a_database_of_a_newer_release_is_left_alone(postgres: str, template: str):
    name = f"cli_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    await connection.close()
    url = database_named(postgres, name)
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO migration VALUES (9999, 'of tomorrow')")
    await connection.close()
    for done in await in_turn([((command,), environment(url)) for command in ("migrate", "work", "audit")]):
        assert "9999" in refusal(done) and "upgrade" in done.err


# tenant


async def listed(env: dict[str, str]) -> dict[str, dict[str, object]]:
    """The dealers by their tenantId."""
    rows = [json.loads(line) for line in (await ok("tenant", "list", "--json", env=env)).splitlines()]
    return {row["tenantId"]: row for row in rows}


async def test_a_created_dealer_is_shown_once_listed_and_can_call(env: dict[str, str], service: Service):
    options = "--currency USD --balance 100.50 --credit-limit 10 --low-balance 25 --qps 5 --markup 12.5"
    options += " --price TEST-OK=2.00"
    addresses = ["--ip-allow", "127.0.0.0/8", "--ip-allow", "::1"]
    out = await ok("tenant", "create", "--name", "Über Reisen", *options.split(), *addresses, "--json", env=env)
    made = json.loads(out)
    assert list(made) == ["tenantId", "name", "environment", "currency", "appKey", "appSecret"]
    assert (made["name"], made["environment"], made["currency"]) == ("Über Reisen", "test", "USD")
    assert made["appKey"].startswith("ak_test_") and made["appSecret"].startswith("sk_test_")
    row = (await listed(env))[made["tenantId"]]
    assert row == {
        "tenantId": made["tenantId"],
        "name": "Über Reisen",
        "status": "ACTIVE",
        "currency": "USD",
        "balance": "100.50",
        "creditLimit": "10.00",
        "lowBalanceThreshold": "25.00",
        "frozen": False,
        "qps": 5,
        "ipAllow": ["127.0.0.0/8", "::1/128"],
        "markupBasisPoints": 1250,
        "editsIpAllow": False,
        "managesKeys": False,
        "rtFace": "off",
        "appKey": made["appKey"],
        "credentialStatus": "ACTIVE",
    }
    async with httpx2.AsyncClient(trust_env=False) as http:
        client = ApiClient(service.url, int(made["tenantId"]), made["appKey"], made["appSecret"], http)
        assert (await client.order(amount="2.00", items=[line("2.00")])).code == "000000"
    text = await ok("tenant", "list", env=env)
    assert made["appKey"] in text and "98.50 USD" in text and made["appSecret"] not in text


def line(price: str) -> dict[str, object]:
    return {"packageCode": "TEST-OK", "quantity": 1, "price": price}


async def test_a_dealer_created_without_options_has_nothing_but_a_key(env: dict[str, str]):
    out = await ok("tenant", "create", "--name", "plain", env=env)
    words = out.split()
    assert words[0] == "tenant" and "AppKey" in words and "AppSecret" in words
    row = (await listed(env))[words[1]]
    assert (row["balance"], row["creditLimit"], row["qps"], row["ipAllow"]) == ("0.00", "0.00", 10, [])


async def test_every_term_of_a_dealer_can_be_changed_and_the_others_stay(env: dict[str, str], service: Service):
    made = json.loads(await ok("tenant", "create", "--name", "one", "--balance", "50", "--json", env=env))
    expected = (await listed(env))[made["tenantId"]]
    for options, changed in [
        ("--name two --qps 0 --credit-limit 7.25", {"name": "two", "qps": 0, "creditLimit": "7.25"}),
        ("--low-balance 20.5", {"lowBalanceThreshold": "20.50"}),
        ("--balance=-7.25 --markup=-5", {"balance": "-7.25", "markupBasisPoints": -500}),
        ("--ip-allow 10.0.0.0/8 --freeze --status DISABLED",
         {"ipAllow": ["10.0.0.0/8"], "status": "DISABLED", "frozen": True}),
        ("--any-ip --unfreeze --status ACTIVE", {"ipAllow": [], "status": "ACTIVE", "frozen": False}),
        ("--price TEST-OK=off --price TEST-DELAY=9", {}),
        ("--price TEST-OK=list", {}),
        ("--rt-face signed", {"rtFace": "signed"}),
        ("--rt-face access-code --ip-allow 10.0.0.0/8", {"rtFace": "access-code", "ipAllow": ["10.0.0.0/8"]}),
        ("--rt-face off --any-ip", {"rtFace": "off", "ipAllow": []}),
    ]:  # fmt: skip
        await ok("tenant", "set", made["tenantId"], *options.split(), env=env)
        expected = expected | changed
        assert (await listed(env))[made["tenantId"]] == expected, options
    assert "nothing is violated" in await ok("audit", "--tenant", made["tenantId"], env=env)


CREATE = ("tenant", "create", "--name", "x")
BAD_TERMS = [
    # what is typed, words of the answer
    (("tenant", "create"), "--name"),
    (("tenant", "create", "--name", " "), "a name is required"),
    ((*CREATE, "--currency", "usd"), "'usd' is no ISO 4217 currency"),
    ((*CREATE, "--qps", "many"), "--qps"),
    ((*CREATE, "--qps", "-1"), "out of range"),
    ((*CREATE, "--qps", "99999999999"), "qps 99999999999 is out of range"),
    ((*CREATE, "--balance", "1e3"), "balance '1e3'"),
    ((*CREATE, "--balance", "1.234"), "balance '1.234'"),
    ((*CREATE, "--balance=-5"), "out of range"),
    ((*CREATE, "--balance", "1000000000000"), "at most 12 digits"),
    ((*CREATE, "--currency", "JPY", "--balance", "1.5"), "JPY"),
    ((*CREATE, "--credit-limit=-5"), "credit limit '-5'"),
    ((*CREATE, "--low-balance=-5"), "low balance '-5'"),
    ((*CREATE, "--ip-allow", "10.0.0.1/8"), "10.0.0.1/8"),
    ((*CREATE, "--markup", "half"), "markup 'half'"),
    ((*CREATE, "--markup", "²"), "markup '²'"),
    ((*CREATE, "--price", "TEST-OK"), "PACKAGE=PRICE"),
    ((*CREATE, "--price", "TEST-OK=cheap"), "price of TEST-OK"),
    ((*CREATE, "--price", "NO-SUCH=1"), "no package 'NO-SUCH'"),
    ((*CREATE, "--colour", "red"), "--colour"),
    (("tenant", "set", "1", "--name", "x"), "no tenant 1"),
    (("tenant", "set", "one", "--name", "x"), "one"),
    (("tenant", "set", "10001", "--status", "ASLEEP"), "ACTIVE, DISABLED"),
    (("tenant", "set", "10001", "--rt-face", "on"), "off, signed, access-code"),
    (("tenant", "set", "10001", "--rt-face", "access-code", "--any-ip"), "needs an address allowlist"),
    (("tenant", "drop", "10001"), "drop"),
    (("tenant", "adjust", "1", "5", "--reason", "x"), "no tenant 1"),
    (("tenant", "adjust", "10001", "5"), "--reason"),
    (("tenant", "adjust", "10001", "5", "--reason", " "), "needs a reason"),
    (("tenant", "adjust", "10001", "0.00", "--reason", "x"), "amount is 0"),
    (("tenant", "adjust", "10001", "1e3", "--reason", "x"), "amount '1e3'"),
    (("tenant", "adjust", "10001", "-9999", "--reason", "x"), "do not cover -9999"),
    (("audit", "--log-head", "what"), "--log-head 'what'"),
    (("audit", "--since", "today"), "--since 'today': a time such as 2026-11-20T08:15:30Z, a date, or"),
    (("audit", "--since", "1d", "--incremental"), "--since and --incremental exclude each other"),
    (("credentials", "reset", "ak_test_nobody"), "no credential 'ak_test_nobody'"),
    (("credentials", "disable", "ak_test_nobody"), "no credential 'ak_test_nobody'"),
    (("credentials", "enable", "ak_test_nobody"), "no credential 'ak_test_nobody'"),
    (("tenant", "set", "10001", "--price", "TEST-DELAY=list"), "'TEST-DELAY' has no price of this dealer's own"),
    (("tenant", "set", "10001", "--price", "TEST-OK"), "PACKAGE=PRICE, PACKAGE=off or PACKAGE=list"),
    (("catalog", "import", "/no/such/file.csv"), "/no/such/file.csv: No such file or directory"),
    (("catalog", "import", "/tmp"), "/tmp: Is a directory"),
    (("serve", "--port", "70000"), "DEALER_PORT"),
    (("frobnicate",), "frobnicate"),
]


async def test_bad_values_are_named_in_one_line_and_change_nothing(
    env: dict[str, str], service: Service, look: asyncpg.Connection
):
    await service.tenant()
    before = await content(look)
    answers = await in_turn([(typed, env) for typed, _ in BAD_TERMS])
    for (typed, words), done in zip(BAD_TERMS, answers, strict=True):
        assert words in refusal(done), (typed, done.err)
    assert await content(look) == before


# credentials


async def test_a_reset_secret_works_and_so_does_the_old_one_until_the_key_is_disabled(
    env: dict[str, str], service: Service
):
    made = await service.tenant(qps=0)
    reset = json.loads(await ok("credentials", "reset", made.app_key, "--json", env=env))
    assert reset["appKey"] == made.app_key and reset["appSecret"] != made.app_secret
    async with service.client(made) as old:
        new = replace(old, app_secret=reset["appSecret"])
        await answers(new, "000000")
        await answers(old, "000000")
        await ok("credentials", "disable", made.app_key, env=env)
        await answers(new, "101006")
        await ok("credentials", "enable", made.app_key, env=env)
        await answers(new, "000000")
        await ok("credentials", "disable", made.app_key, env=env)
    assert (await listed(env))[made.tenant_id]["credentialStatus"] == "DISABLED"


async def test_another_app_key_is_made_limited_and_listed(env: dict[str, str], service: Service):
    made = await service.tenant(qps=0)
    typed = ("credentials", "create", made.tenant_id, "--name", "Reports", "--scope", "read", "--json")
    key = json.loads(await ok(*typed, env=env))
    async with service.client(made) as first:
        second = replace(first, app_key=key["appKey"], app_secret=key["appSecret"])
        await answers(second, "000000")
        assert (await second.post("/esim/order")).code == "101007"
        await ok("credentials", "set", key["appKey"], "--scope", "order", "--ip-allow", "127.0.0.1", env=env)
        await answers(second, "101007")
        await ok("credentials", "set", key["appKey"], "--signs-webhooks", "--json", env=env)
    lines = (await ok("credentials", "list", made.tenant_id, "--json", env=env)).splitlines()
    first_key, second_key = map(json.loads, lines)
    assert (first_key["appKey"], first_key["scopes"]) == (made.app_key, ["read", "order", "money"])
    wanted = {"appKey": key["appKey"], "name": "Reports", "scopes": ["order"], "ipAllow": ["127.0.0.1/32"]}
    assert second_key == second_key | wanted and second_key["signsWebhooks"] and not first_key["signsWebhooks"]
    assert "scope is 'all'" in refusal(await run("credentials", "set", key["appKey"], "--scope", "all", env=env))


async def test_somebody_is_invited_again_and_no_more(env: dict[str, str], service: Service):
    tenant_id = (await service.tenant()).tenant_id
    invited = json.loads(await ok("user", "invite", "ann@cli.example", "--tenant", tenant_id, "--json", env=env))
    assert invited["role"] == "admin" and "/console/invitation/" in invited["link"]
    number = str(invited["invitationId"])
    again = json.loads(await ok("user", "resend", number, "--json", env=env))
    assert again["link"] != invited["link"]
    [listed_one] = (await ok("user", "invitations", "--tenant", tenant_id, "--json", env=env)).splitlines()
    assert json.loads(listed_one)["state"] == "OPEN" and json.loads(listed_one)["address"] == "ann@cli.example"
    assert "ann@cli.example" in await ok("user", "withdraw", number, env=env)
    assert await ok("user", "invitations", "--tenant", tenant_id, "--json", env=env) == ""
    assert "withdrawn" in refusal(await run("user", "resend", number, env=env))
    assert "mail address" in refusal(await run("user", "invite", "ann", env=env))


async def answers(client: ApiClient, code: str) -> None:
    """Returns once the API answers so."""
    async with asyncio.timeout(PATIENCE):
        while (await client.post("/health")).code != code:
            await asyncio.sleep(0.02)


# catalog and stock


async def test_an_operator_puts_test_packages_on_sale_in_a_test_environment_alone(
    env: dict[str, str], service: Service
):
    await ok("catalog", "withdraw", "TEST-ASYNC", env=env)
    done = json.loads(await ok("catalog", "test-packages", "--json", env=env))
    assert done == {"packages": len(catalogue.scripted()), "changed": 1}
    assert "ON_SALE" in await ok("catalog", "show", "TEST-ASYNC", env=env)
    production = await run("catalog", "test-packages", env=env | {"DEALER_ENVIRONMENT": "production"})
    assert production.status == 1 and "DEALER_ENVIRONMENT is production" in refusal(production)


async def test_a_catalogue_is_imported_whole_or_not_at_all(env: dict[str, str], service: Service, folder: Path):
    packages = catalogue.catalogue("test")
    good, bad, foreign = folder / "good.csv", folder / "bad.csv", folder / "foreign.csv"
    text = importing.write(packages)
    good.write_text(text)
    assert await ok("catalog", "import", str(good), env=env) == f"{len(packages)} packages, 0 of them new or changed\n"
    done = json.loads(await ok("catalog", "import", str(good), "--json", env=env))
    assert done == {"packages": len(packages), "changed": 0, "faults": []}
    lines = text.splitlines()
    at = lines[0].split(",").index("price")
    cells = lines[2].split(",")
    lines[2] = ",".join([*cells[:at], "cheap", *cells[at + 1 :]])
    lines[4] = lines[3]
    bad.write_text("\n".join(lines))
    done = await run("catalog", "import", str(bad), env=env)
    assert done.status == 1 and "nothing was imported" in done.out
    assert any(one.startswith(f"{bad}:3: price: ") for one in done.err.splitlines()), done.err
    assert any(one.startswith(f"{bad}:5: ") for one in done.err.splitlines()), done.err
    foreign.write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    assert "not UTF-8" in refusal(await run("catalog", "import", str(foreign), env=env))


async def test_stock_is_loaded_whole_or_not_at_all(env: dict[str, str], service: Service, folder: Path):
    good, bad = folder / "good.csv", folder / "bad.csv"
    good.write_text(stock_csv(3))
    bad.write_text(stock_csv(3, first=100).replace("LPA:1$rsp.example.com$STOCK-00000101", "nonsense"))
    assert await ok("stock", "load", "DEMO-STOCK", str(good), env=env) == "3 profiles loaded; 3 free now\n"
    again = await run("stock", "load", "DEMO-STOCK", str(good), env=env)
    assert again.status == 1 and "nothing was loaded" in again.out and f"{good}:2: iccid: " in again.err
    spoiled = await run("stock", "load", "DEMO-STOCK", str(bad), env=env)
    assert spoiled.status == 1 and f"{bad}:3: activationCode: " in spoiled.err
    nowhere = await run("stock", "load", "NO-SUCH", str(bad), env=env)
    assert nowhere.status == 1 and f"{bad}: there is no package NO-SUCH" in nowhere.err
    report = json.loads((await run("stock", "load", "TEST-OK", str(good), "--json", env=env)).out)
    assert report["loaded"] == 0 and report["faults"]


# audit


async def test_the_exit_status_of_audit_is_the_number_of_violated_invariants(
    env: dict[str, str], service: Service, look: asyncpg.Connection
):
    made = await service.tenant(balance="5")
    clean = json.loads(await ok("audit", "--json", env=env))
    assert clean["violated"] == [] and len(clean["invariants"]) > 20
    await look.execute("UPDATE wallet SET balance = balance + 1 WHERE tenant_id = $1", int(made.tenant_id))
    done = await run("audit", "--json", env=env)
    report = json.loads(done.out)
    assert done.status == len(report["violated"]) > 0 and "A1" in report["violated"]
    text = await run("audit", "--tenant", made.tenant_id, env=env)
    assert text.status == done.status and "VIOLATION" in text.out and made.tenant_id in text.out
    await look.execute("UPDATE wallet SET balance = balance - 1 WHERE tenant_id = $1", int(made.tenant_id))
    await ok("audit", env=env)


async def test_an_incremental_audit_goes_on_from_the_last_one(
    env: dict[str, str], service: Service, look: asyncpg.Connection
):
    await look.execute("DELETE FROM audit_checkpoint")
    first = json.loads(await ok("audit", "--incremental", "--json", env=env))
    assert first["checkpoint"] and first["covered"] is None, "nothing was audited before, so everything is"
    whole = json.loads(await ok("audit", "--json", env=env))
    assert whole["checkpoint"] and whole["covered"] is None
    made = await service.tenant(balance="5")
    covered = json.loads(await ok("audit", "--incremental", "--json", env=env))["covered"]
    assert covered["fromCheckpoint"] and covered["entries"] >= 1
    assert "covered: since the audit of " in await ok("audit", "--incremental", env=env)
    for since in ("1d", datetime.now(UTC).date().isoformat()):
        assert "covered: since 20" in await ok("audit", "--since", since, env=env)
    await look.execute("UPDATE wallet SET balance = balance + 1 WHERE tenant_id = $1", int(made.tenant_id))
    assert (await run("audit", "--incremental", env=env)).status == 1
    await look.execute("UPDATE wallet SET balance = balance - 1 WHERE tenant_id = $1", int(made.tenant_id))


# Settings


async def test_a_setting_that_is_missing_or_malformed_is_named_and_no_secret_is_printed(
    database_url: str, service: Service
):
    """The service has made the data key, which is sealed by ours."""
    serve = ("serve", "--port", "0")
    everyone = [serve, ("work",), ("tenant", "list"), ("audit",)]
    sealed_by_another = f"other:{'A' * 43}="
    table = [
        ({"DATABASE_URL": None}, "DATABASE_URL is not set", [("migrate",), *everyone]),
        ({"DATABASE_URL": f"mysql://u:{CANARY}@host/x"}, "DATABASE_URL: an address", [("migrate",), serve]),
        ({"DATABASE_URL": f"postgresql://u:{CANARY}@host:port/x"}, "DATABASE_URL: an address", [("migrate",), serve]),
        ({"DATABASE_URL": f"postgresql://u:{CANARY}@127.0.0.1:1/x", "DEALER_DATABASE_WAIT_SECONDS": "0"},
         "the database cannot be reached", [("migrate",), *everyone]),
        ({"DATABASE_URL": database_named(database_url, "nowhere")}, '"nowhere" does not exist', [("migrate",), serve]),
        ({"DEALER_SEALING_KEYS": None}, "DEALER_SEALING_KEYS is not set", everyone),
        ({"DEALER_SEALING_KEYS": CANARY}, "DEALER_SEALING_KEYS: ", [serve, ("work",)]),
        ({"DEALER_SEALING_KEYS": f"k:{CANARY}"}, "DEALER_SEALING_KEYS: ", [serve]),
        ({"DEALER_SEALING_KEYS": sealed_by_another}, "DEALER_SEALING_KEYS does not open", [serve, ("work",), CREATE]),
        ({"DEALER_VALKEY_URI": f"valkey://:{CANARY}@host"},
         "DEALER_VALKEY_URI is not a setting; did you mean DEALER_VALKEY_URL?", [("migrate",), serve, ("work",)]),
        ({"DEALER_SHOE_SIZE": CANARY}, "DEALER_SHOE_SIZE is not a setting", [serve]),
        ({"DEALER_PORT_FILE": CANARY}, "DEALER_PORT_FILE is not a setting", [serve]),
        ({"DEALER_SEALING_KEYS_FILE": CANARY}, "DEALER_SEALING_KEYS and DEALER_SEALING_KEYS_FILE are both", everyone),
        ({"DEALER_SEALING_KEYS": None, "DEALER_SEALING_KEYS_FILE": f"/no/{CANARY}"},
         "DEALER_SEALING_KEYS_FILE: No such file", everyone),
        ({"DEALER_SEALING_KEYS": None, "DEALER_SEALING_KEYS_FILE": "/dev/null"},
         "DEALER_SEALING_KEYS_FILE: the file is empty", [serve]),
        ({"DATABASE_URL": None, "DATABASE_URL_FILE": "/proc"}, "DATABASE_URL_FILE: Is a directory",
         [("migrate",), serve]),
        ({"DEALER_VALKEY_URL_FILE": sys.executable}, "DEALER_VALKEY_URL_FILE: a text file", [serve]),
        ({"DEALER_READ_DATABASE_URL_FILE": sys.executable}, "DEALER_READ_DATABASE_URL_FILE: a text file", [serve]),
        ({"DEALER_ENVIRONMENT": "staging"}, "DEALER_ENVIRONMENT: ", [serve]),
        ({"DEALER_PORT": "http"}, "DEALER_PORT: ", [serve[:1]]),
        ({"DEALER_HOST": "192.0.2.1"}, "cannot listen on 192.0.2.1", [serve]),
        ({"DEALER_HOST": "no-such-host.invalid"}, "cannot listen on no-such-host.invalid", [serve]),
        ({"DEALER_TRUSTED_PROXIES": "proxy"}, "DEALER_TRUSTED_PROXIES: ", [serve]),
        ({"DEALER_VALKEY_URL": f"http://:{CANARY}@host"}, "DEALER_VALKEY_URL: ", [serve]),
        ({"DEALER_WEBHOOK_SCHEDULE": "soon"}, "DEALER_WEBHOOK_SCHEDULE: ", [("work",)]),
        ({"DEALER_WEBHOOK_SCHEDULE": "1,1,1,1,1,1,1,1,1"}, "DEALER_WEBHOOK_SCHEDULE: at most 8", [("work",)]),
        ({"DEALER_TLS_CERT": "/no/such.pem"}, "DEALER_TLS_KEY", [serve]),
        ({"DEALER_TLS_CERT": "/no/c.pem", "DEALER_TLS_KEY": "/no/k.pem"}, "DEALER_TLS_CERT", [serve]),
        ({"DEALER_ENVIRONMENT": "production"}, "DEALER_TLS_CERT", [serve]),
        ({"DEALER_ENVIRONMENT": "production", "DEALER_TRUSTED_PROXIES": "10.0.0.1"}, "embedded", [serve]),
    ]  # fmt: skip
    calls = [(typed, changed, words) for changed, words, commands in table for typed in commands]
    done = await in_turn([(typed, environment(database_url, **changed)) for typed, changed, _ in calls])
    for (typed, changed, words), one in zip(calls, done, strict=True):
        assert words in refusal(one), (typed, changed, one.err)


async def test_secrets_are_read_from_files(database_url: str, service: Service, tmp_path: Path):
    texts = {
        "DATABASE_URL": database_url,
        "DEALER_READ_DATABASE_URL": database_url,
        "DEALER_SEALING_KEYS": SEALING_KEYS,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{text}\n")
    files = {f"{name}_FILE": str(tmp_path / name) for name in texts}
    env = environment(None, DEALER_SEALING_KEYS=None, **files)
    for typed in (("migrate",), ("tenant", "list"), ("credentials", "view", (await service.tenant()).app_key)):
        assert (await run(*typed, env=env)).status == 0


async def test_a_port_in_use_is_named(env: dict[str, str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for done in await in_turn([(("serve", "--port", port), env), (("dev", "--port", port), env)]):
            assert refusal(done) == f"cannot listen on 127.0.0.1 port {port}: Address already in use"
    for port in ("-1", "65536", "99999"):  # the last would be 34463
        words = f"cannot listen on 127.0.0.1 port {port}: a port is 0 to 65535"
        assert refusal(await run("dev", f"--port={port}", env=env)) == words


async def test_every_command_explains_itself(env: dict[str, str]):
    commands = ["", "dev", "serve", "work", "migrate", "audit", "tenant", "tenant create", "tenant list", "tenant set",
                "credentials reset", "credentials disable", "credentials enable", "catalog import", "stock load",
                "catalog set", "price-list set", "user create", "user reset", "user list"]  # fmt: skip
    for done in await in_turn([((*command.split(), "--help"), env) for command in commands]):
        assert done.status == 0 and done.out.startswith("Usage: dealer-server") and not done.err


async def test_wrong_usage_exits_with_two_and_errors_are_json_for_programs(env: dict[str, str]):
    table = [("tennat",), ("tenant", "list", "--nonsense"), ("tenant", "create"), ("serve", "--port", "eighty")]
    for done in await in_turn([(typed, env) for typed in table]):
        assert done.status == 2 and not done.out and len(done.err.splitlines()) == 1, done
    bare, shown, unknown = await in_turn([((), env), (("--version",), env), (("tenant", "lst", "--json"), env)])
    assert bare.status == 0 and bare.out.startswith("Usage: dealer-server COMMAND")
    assert shown.status == 0 and shown.out.startswith("dealer-server ")
    assert 'Did you mean "list"?' in json.loads(unknown.err)["error"]["message"] and unknown.status == 2


async def test_a_shell_completes_commands_and_their_options(env: dict[str, str]):
    done = await run("completion", "bash", env=env)
    typed = "COMP_WORDS=(dealer-server price-list ''); COMP_CWORD=2; _dealer_server; echo ${COMPREPLY[@]}"
    bash = await asyncio.create_subprocess_exec("bash", "-c", done.out + typed, stdout=asyncio.subprocess.PIPE)
    offered, _ = await bash.communicate()
    assert {"create", "set", "list"} <= set(offered.decode().split())


async def test_tables_are_as_wide_as_what_stands_in_them(env: dict[str, str]):
    name = "a name as long as a line of a narrow terminal, which nobody wants to see cut"
    await ok("tenant", "create", "--name", name, "--json", env=env)
    assert name in await ok("tenant", "list", env={**env, "COLUMNS": "40"})


# TLS


async def test_in_production_serve_works_over_tls_on_a_postgresql_of_the_operator(folder: Path):
    cert, key = self_signed(folder)
    async with a_postgresql_of_somebody_else(folder) as url:
        files = {"DEALER_TLS_CERT": str(cert), "DEALER_TLS_KEY": str(key)}
        env = environment(url, DEALER_ENVIRONMENT="production", **files)
        await ok("migrate", env=env)
        made = json.loads(await ok("tenant", "create", "--name", "live", "--json", env=env))
        assert made["environment"] == "production" and made["appKey"].startswith("ak_live_")
        async with running("serve", "--port", "0", env=env) as serve, running("work", env=env) as work:
            base = await serve.ready()
            assert base.startswith("https://127.0.0.1:")
            async with httpx2.AsyncClient(trust_env=False, verify=ssl.create_default_context(cafile=cert)) as http:
                client = ApiClient(base, int(made["tenantId"]), made["appKey"], made["appSecret"], http)
                assert (await client.post("/health")).code == "000000"
            for process in (serve, work):
                process.signal(signal.SIGTERM)
                assert await process.ended() == 0, process.said


@asynccontextmanager
async def a_postgresql_of_somebody_else(folder: Path) -> AsyncIterator[str]:
    """Started by hand, without our mark."""
    data = folder / "data"
    server = await asyncio.to_thread(embedded.start, data, fast_and_unsafe=True)
    await asyncio.to_thread(embedded_postgres.stop, server._programs, data / "postgres")
    unmarked = embedded_postgres.SETTINGS | embedded_postgres.UNSAFE_SETTINGS | {"cluster_name": "theirs"}
    await asyncio.to_thread(embedded_postgres.launch, server._programs, data, server.socket_dir, unmarked)
    try:
        yield server.dsn
    finally:
        await asyncio.to_thread(server.stop)


# dev


@asynccontextmanager
async def dev(data: Path, *arguments: str) -> AsyncIterator[tuple[Process, dict[str, object]]]:
    """`dev --json`, and the line it printed."""
    started = running(
        "dev", "--json", "--port", "0", "--data", str(data), *arguments, env=environment(None), ready=False
    )
    async with started as process:
        text = await process.line()
        assert text, process.said
        yield process, json.loads(text)


def postgres_process(data: Path) -> psutil.Process:
    return psutil.Process(int((data / "postgres/postmaster.pid").read_text().split()[0]))


async def stopped(process: Process, number: int, postgres: psutil.Process) -> None:
    """It ends well, and so does its PostgreSQL."""
    process.signal(number)
    assert await process.ended() == 0, process.said
    assert not postgres.is_running() or postgres.status() == psutil.STATUS_ZOMBIE


async def test_dev_cuts_nothing_that_is_to_be_copied(folder: Path):
    data = ("--data", str(folder / "data"))
    env = environment(None, COLUMNS="40")
    async with running("dev", "--port", "0", *data, env=env, ready=False) as process:
        lines = []
        while not lines or not lines[-1].startswith("export ESIM_DEALER_APP_SECRET="):
            lines.append((await process.line()).rstrip("\n"))
            assert lines[-1] or process.lives, process.said
        key, secret = (line.partition("=")[2] for line in lines[-2:])
        assert len(secret) == len("sk_test_") + 40
        assert f"AppKey        {key}" in lines and f"AppSecret     {secret}" in lines
        url = next(line.removeprefix("base address  ") for line in lines if line.startswith("base address"))
        assert f"docs          {url}/docs" in lines


async def test_dev_runs_everything_and_its_line_says_how_to_reach_it(folder: Path):
    data = folder / "data"
    async with dev(data) as (process, said):
        fields = ["baseUrl", "appKey", "appSecret", "tenantId", "consoleUrl", "operator", "dealer", "env"]
        assert list(said) == fields
        env = environment(None) | said["env"]
        async with httpx2.AsyncClient(trust_env=False) as http:
            client = ApiClient(said["baseUrl"], int(said["tenantId"]), said["appKey"], said["appSecret"], http)
            for who in ("operator", "dealer"):
                answer = await http.post(f"{said['consoleUrl']}/sign-in", data=said[who])
                assert (answer.status_code, answer.headers["location"]) == (303, "/console")
            placed = await client.order()
            assert (await client.delivered(placed.data["orderNo"]))["orderStatus"] == "COMPLETED"
        assert said["tenantId"] in await listed(env)
        unset = environment(None, DEALER_SEALING_KEYS=None)
        found = await run("tenant", "list", env=unset)
        assert (found.status, said["tenantId"] in found.out) == (0, True) and said["baseUrl"] in found.err
        named = folder / "database-url"  # one that is read from a file is a database that is named
        named.write_text(said["env"]["DATABASE_URL"])
        by_file = environment(None) | said["env"] | {"DATABASE_URL_FILE": str(named)}
        del by_file["DATABASE_URL"]
        found = await run("tenant", "list", env=by_file)
        assert (found.status, said["tenantId"] in found.out, found.err) == (0, True, "")
        [written] = Path(unset["XDG_STATE_HOME"]).rglob(f"dev-{process.pid}.json")
        assert written.stat().st_mode & 0o777 == 0o600
        assert await ok("migrate", env=env) == "the schema is up to date\n"
        assert json.loads(await ok("audit", "--json", env=env))["violated"] == []
        json.loads(await ok("tenant", "create", "--name", "second", "--json", env=env))
        connection = await asyncpg.connect(env["DATABASE_URL"])  # as a folder of an older version
        await connection.execute("DELETE FROM package WHERE package_code = 'TEST-TOPUP-OK'")
        await connection.close()
        second = await run("dev", "--port", "0", "--data", str(data), env=environment(None))
        hint = "stop it, or name another folder with --data"
        assert refusal(second) == f"data folder {data} is in use by process {process.pid}; {hint}"
        await stopped(process, signal.SIGTERM, postgres_process(data))
        assert await process.out() == "", "one line and no more"
        assert "DATABASE_URL is not set" in refusal(await run("tenant", "list", env=unset)) and not written.exists()

    async with dev(data) as (process, again):
        same = ("appKey", "appSecret", "tenantId", "operator", "dealer")
        assert {name: again[name] for name in same} == {name: said[name] for name in same}
        assert len(await listed(environment(None) | again["env"])) == 2
        connection = await asyncpg.connect(again["env"]["DATABASE_URL"])
        assert await connection.fetchval("SELECT count(*) FROM package WHERE package_code = 'TEST-TOPUP-OK'") == 1
        await connection.close()
        await stopped(process, signal.SIGINT, postgres_process(data))

    async with dev(data, "--fresh") as (process, fresh):
        assert fresh["appKey"] != said["appKey"]
        assert len(await listed(environment(None) | fresh["env"])) == 1
        await stopped(process, signal.SIGTERM, postgres_process(data))

    version = data / "postgres/PG_VERSION"
    version.write_text("15\n")
    other = await run("dev", "--port", "0", "--data", str(data), env=environment(None))
    assert refusal(other) == f"data folder {data} is of PostgreSQL 15; this release brings 18"


async def test_of_two_instances_of_dev_a_command_goes_to_the_one_that_is_named(folder: Path):
    unset = environment(None, DEALER_SEALING_KEYS=None)

    async def goes_to(said: dict[str, object], url: str = "") -> bool:
        found = await run("tenant", "list", env=unset | {"ESIM_DEALER_URL": url})
        return found.status == 0 and str(said["baseUrl"]) in found.err

    async with dev(folder / "one") as (first, one):
        async with dev(folder / "two") as (second, two):
            assert await goes_to(two), "the last one started"
            assert await goes_to(one, str(one["baseUrl"]))
            assert await goes_to(two, f"{two['baseUrl']}/")
            assert await goes_to(two, "https://api.dealer.example")
            await stopped(second, signal.SIGTERM, postgres_process(folder / "two"))
        assert await goes_to(one), "its own entry is still there"
        await stopped(first, signal.SIGTERM, postgres_process(folder / "one"))
    assert "DATABASE_URL is not set" in refusal(await run("tenant", "list", env=unset))


async def test_dev_touches_no_folder_that_is_not_its_own(folder: Path):
    strange, theirs, denied = folder / "strange", folder / "theirs", folder / "denied"
    strange.mkdir()
    (strange / "letter.txt").write_text("dear")
    theirs.mkdir()
    theirs.chmod(0o777)
    denied.mkdir()
    if os.geteuid() == 0:
        os.chown(denied, 65534, -1)
    else:
        denied.chmod(0o500)
    missing_parent = folder / "letter.txt" / "data"
    (folder / "letter.txt").write_text("dear")
    table = [
        (strange, "holds files that are not ours"),
        (theirs, "anyone may write"),
        (denied, "belongs to" if os.geteuid() == 0 else "cannot use the data folder"),
        (missing_parent, f"cannot use the data folder {missing_parent}"),
    ]
    for fresh in ((), ("--fresh",)):
        typed = [("dev", "--port", "0", "--data", str(data), *fresh) for data, _ in table]
        done = await in_turn([(one, environment(None)) for one in typed])
        for (_, words), one in zip(table, done, strict=True):
            assert words in refusal(one) or (fresh and "cannot empty the data folder" in one.err)
    assert (strange / "letter.txt").read_text() == "dear" and not list(theirs.iterdir())
