"""What every command prints with --json: names as on the wire, a tenantId as a text."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from dealer_server import clock
from dealer_server.__main__ import app
from support.api_client import Service
from support.console.operator_pages import failed_for_good
from support.processes import environment, run
from support.store_fixture import stock_csv
from support.webhook_fixture import listening

_is_name = re.compile(r"[a-z][a-zA-Z0-9]*").fullmatch
DATA = ("settings", "purchases", "cost", "sold", "freeIccids")
"""What is no name of ours but data: by state, currency or sku, or a supplier's own setting."""
LEFT_OUT = {
    "backup check": "it restores a dump; test_backup_command.py reads what it prints",
    "cluster status": "it needs a cluster; test_cluster.py",
    "dev": "serves",
    "order retry": "test_retry.py",
    "refund approve": "as refund list prints",
    "refund reject": "as refund list prints",
    "supplier resolve": "test_supplier_command.py",
    "supplier iccids": "test_supplier_command.py",
    "supplier import": "test_supplier_command.py",
    "webhook stop": "as webhook jobs prints",
}


def commands(part: App, *before: str) -> Iterator[str]:
    """Those that have --json."""
    for name in part:
        if name.startswith("-"):
            continue
        one = part[name]
        if one.default_command is None:
            yield from commands(one, *before, name)
        elif any("--json" in argument.names for argument in one.assemble_argument_collection()):
            yield " ".join((*before, name))


def names_in(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for one in value:
            yield from names_in(one)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            if name not in DATA:
                yield from names_in(inner)


CALLS = """
tenant create --name Json
tenant list
tenant set {tenant} --qps 5
tenant brand {tenant} --name Json
tenant adjust {tenant} 5 --reason test
credentials create {tenant} --name more
credentials list {tenant}
credentials set {key} --name less
credentials view {key}
credentials reset {key}
credentials disable {key}
credentials enable {key}
catalog test-packages
catalog import {catalogue}
catalog import {catalogue} --preview
catalog create JSON-1 {columns}
catalog set JSON-1 --set price=2
catalog withdraw JSON-1
catalog offer JSON-1
stock load JSON-1 {stock}
price-list create Json --markup 10
price-list list
price-list show Json
price-list set Json --markup 11 --price JSON-1=3
price-list import Json {prices}
price-list assign Json {tenant}
price-list unassign {tenant}
price-list remove Json
supplier set rt:json {supplier} --kind rt_upstream
supplier list
supplier show rt:json
supplier check rt:json
supplier pause rt:json
supplier resume rt:json
supplier route JSON-1 rt:json=SKU@0.5
supplier route JSON-1 stock=JSON-1
supplier remove rt:json
topup list --status PENDING
topup approve {topup}
topup reject {other} --reason no
refund list --status REFUNDED
reports rebuild
reports show
reports statement {tenant} {month}
webhook failures
webhook resend --tenant {tenant} --state FAILED --yes
webhook sync --tenant {tenant} --since 1h --yes
webhook jobs
user create json
user list
user reset json
user invite json@example.com
user invitations
user resend {invitation}
user withdraw {invitation}
keys rotate
retention
audit
"""

COLUMNS = "packageName=Json price=1 currency=USD dataType=TOTAL dataBytes=1GB duration=7 locationCode=FR supplier=stock"
SETTINGS = {"baseUrl": "http://127.0.0.1:1", "accessCode": "a", "secretKey": "s"}


@pytest.fixture(scope="module")
async def things(service: Service, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """What the commands are given."""
    folder: Path = tmp_path_factory.mktemp("files")
    files = {
        "catalogue": "packageCode,price\nTEST-OK,1.80\n",
        "stock": stock_csv(1),
        "prices": "packageCode,exception\nJSON-1,4\n",
        "supplier": json.dumps(SETTINGS),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    made = {name: str(folder / name) for name in files}
    made["columns"] = " ".join(f"--set {column}" for column in COLUMNS.split())
    async with service.client(await service.tenant(balance="100", qps=0)) as dealer, listening(1) as [receiver]:
        await failed_for_good(service, dealer, receiver)
        order_no = (await dealer.order()).data["orderNo"]
        await dealer.delivered(order_no)
        await dealer.post("/esim/refund", {"orderNo": order_no})
        for name in ("topup", "other"):
            given = {"amount": "5.00", "transactionId": name}
            made[name] = (await dealer.post("/account/topup", given)).data["topupNo"]
        yield made | {"tenant": str(dealer.tenant_id), "month": f"{clock.now():%Y-%m}"}


async def test_every_command_prints_names_as_on_the_wire(
    service: Service, database_url: str, things: dict[str, str]
) -> None:
    calls = [line.split() for line in CALLS.strip().splitlines()]
    tried = {" ".join(call[:2] if call[0] not in ("audit", "retention") else call[:1]) for call in calls}
    assert tried | set(LEFT_OUT) == set(commands(app)), "every command with --json is tried"
    env = environment(database_url)
    wrong = list[tuple[str, str]]()
    for call in CALLS.strip().splitlines():
        done = await run(*call.format_map(things).split(), "--json", env=env)
        assert done.out.strip() and (done.status == 0 or call.startswith("supplier check")), (call, done)
        for line in done.out.splitlines():
            printed = json.loads(line)
            for name, value in names_in(printed):
                if not _is_name(name) or name.endswith(("At", "ID")) or (name == "tenantId" and isinstance(value, int)):
                    wrong.append((call, name))
            if isinstance(printed, dict):
                remembered = {"appKey": "key", "invitationId": "invitation"}
                things |= {remembered[name]: str(value) for name, value in printed.items() if name in remembered}
    assert wrong == []
