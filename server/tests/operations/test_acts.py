"""Operators change a dealer's money and terms: the audit log records author, origin, before and after."""

import asyncio
import contextlib
import json
from typing import Any

import asyncpg
import pytest

from dealer_server import audit_context, clock, store
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.wallets.adjust import adjust_balance
from dealer_server.store import schema
from dealer_server.store.audit import audit_log, invariants
from support.api_client import ApiClient, Service
from support.databases import database_named
from support.processes import Done, environment, run

pytestmark = pytest.mark.usefixtures("exact")


async def acts(service: Service, dealer: ApiClient) -> list[dict[str, Any]]:
    """The dealer's part of the audit log, oldest first."""
    async with service.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT at, author, source, action, detail FROM audit_log WHERE tenant_id = $1 ORDER BY audit_id",
            dealer.tenant_id,
        )
    return [dict(row) | {"detail": json.loads(row["detail"])} for row in rows]


async def balance(dealer: ApiClient) -> dict[str, Any]:
    return (await dealer.post("/account/balance")).data


async def adjust(service: Service, dealer: ApiClient, amount: str, reason: str = "goodwill") -> None:
    await adjust_balance(service.database, dealer.tenant_id, amount, reason, "ops", clock.now)


async def command(service: Service, *arguments: str) -> Done:
    return await run(*arguments, env=environment(service.settings.database_url))


# The low-balance threshold


async def test_a_low_balance_is_reported_below_the_threshold_and_not_at_it(service: Service, dealer: ApiClient):
    await service.change(dealer.tenant_id, balance="20", credit_limit="5", low_balance="25")
    at = await balance(dealer)
    assert (at["lowBalance"], at["lowBalanceThreshold"], at["availableBalance"]) == (False, "25.00", "25.00")
    await dealer.order()
    assert (await balance(dealer))["lowBalance"] is True
    await service.change(dealer.tenant_id, low_balance="0")
    assert (await balance(dealer))["lowBalance"] is False


async def test_a_frozen_wallet_pays_no_order_and_accepts_refunds(service: Service, dealer: ApiClient):
    order = (await dealer.order()).data
    await dealer.delivered(order["orderNo"])
    await service.change(dealer.tenant_id, frozen=True)
    refused = await dealer.order()
    assert (refused.status, refused.code) == (403, "200020")
    assert (await dealer.post("/esim/refund", {"orderNo": order["orderNo"]})).data["status"] == "REFUNDED"
    await adjust(service, dealer, "5")
    assert (await balance(dealer))["balance"] == "1005.00"
    await service.change(dealer.tenant_id, frozen=False)
    assert (await dealer.order()).code == "000000"


# Adjustments


async def test_an_adjustment_makes_a_ledger_entry_and_an_audit_record(service: Service, dealer: ApiClient):
    await adjust(service, dealer, "2.50")
    await adjust(service, dealer, "-1000", "charged back")
    assert (await balance(dealer))["balance"] == "2.50"
    entries = (await dealer.post("/account/statement")).data["entries"]
    assert [(one["entryType"], one["amount"]) for one in entries][:2] == [("ADJUST", "-1000.00"), ("ADJUST", "2.50")]
    last = (await acts(service, dealer))[-1]
    assert (last["author"], last["action"]) == ("ops", "tenant.adjust")
    assert last["detail"] == {
        "reason": "charged back",
        "amount": "-1000.00",
        "entryVersion": int(entries[0]["entryNo"]),
        "before": {"balance": "1002.50"},
        "after": {"balance": "2.50"},
    }


@pytest.mark.parametrize(
    ("amount", "reason", "words"),
    [
        ("0", "x", "amount is 0"),
        ("-0.00", "x", "amount is 0"),
        ("1.001", "x", "amount '1.001'"),
        ("--5", "x", "amount '-5'"),
        ("+5", "x", r"amount '\+5'"),
        ("5", " ", "needs a reason"),
        ("-1010.01", "x", "balance 1000.00 and credit limit 10.00 do not cover -1010.01"),
    ],
)
async def test_an_invalid_adjustment_changes_nothing(
    service: Service, dealer: ApiClient, amount: str, reason: str, words: str
):
    await service.change(dealer.tenant_id, credit_limit="10")
    before = await acts(service, dealer)
    with pytest.raises(OperatorError, match=words):
        await adjust(service, dealer, amount, reason)
    assert (await balance(dealer))["balance"] == "1000.00" and await acts(service, dealer) == before


async def test_the_whole_credit_limit_can_be_debited(service: Service, dealer: ApiClient):
    await service.change(dealer.tenant_id, credit_limit="10")
    await adjust(service, dealer, "-1010")
    assert await balance(dealer) == await balance(dealer) | {"balance": "-10.00", "availableBalance": "0.00"}


async def test_adjustments_concurrent_with_orders_are_exact(service: Service, dealer: ApiClient):
    await asyncio.gather(
        *(adjust(service, dealer, "1" if number % 2 else "-1") for number in range(20)),
        *(dealer.order() for _ in range(20)),
    )
    assert (await balance(dealer))["balance"] == "964.00"


# The audit log


async def test_a_change_of_terms_records_before_and_after(service: Service, dealer: ApiClient):
    await service.change(
        dealer.tenant_id, credit_limit="10", low_balance="5", frozen=True, qps=0, prices={"TEST-OK": "2.00"}
    )
    await service.change(dealer.tenant_id, balance="900", status="DISABLED", prices={"TEST-OK": "off"}, markup="3")
    first, second = (await acts(service, dealer))[-2:]
    assert first["detail"] == {
        "before": {"creditLimit": "0.00", "lowBalanceThreshold": "0.00", "frozen": False, "price TEST-OK": "list"},
        "after": {"creditLimit": "10.00", "lowBalanceThreshold": "5.00", "frozen": True, "price TEST-OK": "2.00"},
    }
    assert second["detail"]["before"] == {
        "status": "ACTIVE", "balance": "1000.00", "markupBasisPoints": 0, "price TEST-OK": "2.00",
    }  # fmt: skip
    assert second["detail"]["after"] == {
        "status": "DISABLED", "balance": "900.00", "markupBasisPoints": 300, "price TEST-OK": "off",
    }  # fmt: skip
    assert second["detail"]["entryVersion"] == 2


async def test_concurrent_changes_of_terms_form_a_chain(service: Service, dealer: ApiClient):
    await asyncio.gather(*(service.change(dealer.tenant_id, credit_limit=str(number)) for number in range(1, 13)))
    limits = [
        (one["detail"]["before"]["creditLimit"], one["detail"]["after"]["creditLimit"])
        for one in (await acts(service, dealer))[1:]
    ]
    assert len(limits) == 12 and limits[0][0] == "0.00"
    assert [before for before, _ in limits[1:]] == [after for _, after in limits[:-1]]


async def test_an_audit_record_names_the_origin(service: Service, dealer: ApiClient):
    audit_context.source.set("203.0.113.9")
    await service.change(dealer.tenant_id, name="Other")
    done = await command(service, "tenant", "adjust", str(dealer.tenant_id), "-7.50", "--reason", "fee", "--json")
    assert json.loads(done.out)["balance"] == "992.50", done
    from_console, from_cli = (await acts(service, dealer))[-2:]
    assert from_console["source"] == "203.0.113.9"
    assert from_cli["author"].startswith("cli:") and from_cli["source"].startswith("cli ")
    assert " pid " in from_cli["source"] and from_cli["at"] >= from_console["at"]


async def test_no_audit_record_holds_a_secret(service: Service, dealer: ApiClient):
    reset = json.loads((await command(service, "credentials", "reset", dealer.app_key, "--json")).out)
    await command(service, "credentials", "disable", dealer.app_key)
    created, was_reset, disabled = await acts(service, dealer)
    assert created["detail"]["before"] == {} and created["detail"]["after"]["balance"] == "1000.00"
    assert was_reset["detail"]["before"] == {"secretVersion": 1} and was_reset["detail"]["appKey"] == dealer.app_key
    assert disabled["detail"]["after"] == {"status": "DISABLED"} and disabled["detail"]["before"] == {
        "status": "ACTIVE"
    }
    said = str([created, was_reset, disabled])
    assert dealer.app_secret not in said and reset["appSecret"] not in said


async def test_concurrent_audit_records_form_one_chain(service: Service, dealer: ApiClient, stranger: ApiClient):
    await asyncio.gather(
        *(service.change(one.tenant_id, qps=number) for one in (dealer, stranger) for number in range(1, 21))
    )
    assert len(await acts(service, dealer)) == len(await acts(service, stranger)) == 21


@pytest.mark.parametrize("statement", ["UPDATE audit_log SET author = 'x'", "DELETE FROM audit_log",
                                       "TRUNCATE audit_log", "UPDATE ledger_entry SET amount = 0"])  # fmt: skip
async def test_the_owner_of_the_tables_can_only_append_audit_records(
    service: Service, dealer: ApiClient, statement: str
):
    async with service.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("CREATE ROLE plain; GRANT SELECT, INSERT ON audit_log, ledger_entry TO plain")
        await connection.execute("SET LOCAL ROLE plain")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
        await transaction.rollback()


async def test_the_audit_reports_the_head_of_the_log_and_verifies_it_later(service: Service, dealer: ApiClient):
    report = json.loads((await command(service, "audit", "--json")).out)
    await service.change(dealer.tenant_id, name="Later")
    again = await command(service, "audit", "--log-head", report["logHead"])
    assert again.status == 0 and "nothing is violated" in again.out, again
    forged = await command(service, "audit", "--log-head", "00" * 32)
    assert forged.status == 1 and "does not contain the head" in forged.out


async def owned(postgres: str, name: str) -> asyncpg.Connection:
    """To a new database, as its owner, who is no superuser."""
    admin = await asyncpg.connect(postgres)
    await admin.execute(f"CREATE ROLE {name}_owner")
    await admin.execute(f"CREATE DATABASE {name} OWNER {name}_owner")
    await admin.close()
    connection = await asyncpg.connect(database_named(postgres, name))
    await connection.execute(f"SET ROLE {name}_owner")
    return connection


async def test_the_migration_chains_older_audit_records(postgres: str):
    """Also where the tables' owner is no superuser and has taken the right to change them from itself."""
    connection = await owned(postgres, "chained")
    *before, chaining = [one for one in schema.known() if one.number <= 5]
    assert chaining.name == "audit_log"
    for migration in before:
        await connection.execute(migration.sql)
    for number in range(3):
        with contextlib.suppress(asyncpg.DivisionByZeroError):  # an act that was rolled back leaves a gap
            await connection.execute("INSERT INTO audit_log (author, action) VALUES ('x', (1 / $1::int)::text)", 0)
        await connection.execute("INSERT INTO audit_log (author, action) VALUES ('ops', $1)", f"act {number}")
    await connection.execute(chaining.sql)
    await store.audit_log.record_act(connection, "ops", "after", None, {})
    found = [
        await invariants.violations(connection, one.sql, None, clock.now())
        for one in invariants.QUERIES
        if one.invariant == "A24"
    ]
    assert [one.total for one in found] == [0, 0] and (await audit_log.head(connection)).acts == 4
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("DELETE FROM audit_log")
    await connection.close()


async def test_migrate_takes_back_the_right_to_change_the_ledger(postgres: str):
    """A restore without privileges gives it to the owner of the tables."""
    connection = await owned(postgres, "restored")
    await schema.migrate(connection)
    await connection.execute("GRANT ALL ON ledger_entry, audit_log TO restored_owner")
    assert await schema.migrate(connection) == []
    for table in ("ledger_entry", "audit_log"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"DELETE FROM {table}")
    await connection.close()
