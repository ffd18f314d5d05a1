"""What could PostgreSQL do with one order per transaction? Our own statement, sent by pgbench to the same tables.

The script is made from store.order's statement, so that both change together: each array parameter becomes an array of
the one order's value. The wallet's row is locked and read first, as a server that decides one order would do it.
"""

import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.support import calls, programs
from bench.support.failure import Failed
from bench.support.instance import Instance
from dealer_server import clock, store
from dealer_server.db.database import Database
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, priced_lines
from esim_dealer.wire.calls import OrderLine, PlaceOrder

_AMOUNT = money.parse(calls.PRICE, "USD")
_EXTRA_SECONDS = 60
_IDS_PER_SECOND = 20_000

# What the statement's parameters are for one order, by their names in it: pgbench's variables, or constants.
_VALUES = {
    "debit.place": "1",
    "debit.tenant_id": ":tenant",
    "debit.orders": "1",
    "debit.profiles": "1",
    "debit.total": str(_AMOUNT),
    "placed.tenant_id": ":tenant",
    "placed.order_id": ":order_id",
    "placed.transaction_id": "'pgbench-' || :order_id::bigint",
    "placed.digest": "'\\xDIGEST'",
    "placed.currency": "'USD'",
    "placed.amount": str(_AMOUNT),
    "placed.place": "1",
    "placed.number": "1",
    "placed.spent": str(_AMOUNT),
    "placed.remark": "NULL",
    "asked.place": "1",
    "asked.tenant_id": ":tenant",
    "asked.order_id": ":order_id",
    "asked.line": "0",
    "asked.package_code": f"'{calls.PACKAGE}'",
    "asked.supplier": "'simulated'",
    "asked.quantity": "1",
    "asked.period_num": "1",
    "asked.price": str(_AMOUNT),
    "asked.first_profile_id": ":profile_id",
}

_SCRIPT = """\
\\set n :n + 1
\\set order_id :first_order_id + :n * :clients + :client_id
\\set profile_id :first_profile_id + :n * :clients + :client_id
\\set tenant random(:first_tenant, :last_tenant)
BEGIN;
SELECT version, balance FROM wallet WHERE tenant_id = :tenant FOR NO KEY UPDATE;
{write};
COMMIT;
"""


class Placed(NamedTuple):
    """What pgbench saw."""

    transactions: int
    per_second: float
    p50_ms: float
    p99_ms: float


def script() -> str:
    return _SCRIPT.format(write=_for_one_order(store.order.write_statement()))


def run(instance: Instance, database: str, wallets: int, clients: int, seconds: int) -> Placed:
    """Orders, one per transaction, on this many wallets. Raises Failed where a transaction fails."""
    variables = {
        "n": 0,
        "clients": clients,
        "first_tenant": instance.hot.tenant_id,
        "last_tenant": instance.hot.tenant_id + wallets - 1,
        **_ids(instance, database, seconds * _IDS_PER_SECOND),
    }
    return execute(instance, database, script(), variables, clients, seconds)


def execute(
    instance: Instance, database: str, script: str, variables: Mapping[str, int], clients: int, seconds: int
) -> Placed:
    """Any script. Raises Failed where a transaction fails."""
    with tempfile.TemporaryDirectory(dir=instance.folder) as name:
        folder = Path(name)
        (folder / "script").write_text(script)
        command = [
            *(programs.pgbench(), "-h", instance.socket_dir, "-p", "5432", "-U", "esim", "-n", "-M", "prepared"),
            *("-c", clients, "-j", 1, "-T", seconds, "-f", folder / "script", "-l", "--log-prefix", folder / "log"),
            *(part for key, value in variables.items() for part in ("-D", f"{key}={value}")),
            database,
        ]
        done = subprocess.run(
            [str(part) for part in command],
            # What serve sets for its own connection.
            env={**os.environ, "PGOPTIONS": "-c jit=off -c enable_seqscan=off -c enable_hashjoin=off"
                 " -c enable_mergejoin=off -c application_name=pgbench"},
            capture_output=True, text=True, timeout=seconds + _EXTRA_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode or "number of failed transactions: 0 " not in done.stdout:
            raise Failed(f"pgbench: {done.stderr.strip()[-1000:] or done.stdout.strip()}")
        latencies = [int(line.split()[2]) / 1000 for file in folder.glob("log*") for line in file.open()]
    percentiles = statistics.quantiles(latencies, n=100)
    return Placed(len(latencies), _rate(done.stdout), percentiles[49], percentiles[98])


def _rate(output: str) -> float:
    found = re.search(r"^tps = ([\d.]+)", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def _for_one_order(statement: str) -> str:
    """The statement with values in place of its array parameters. Raises Failed where it has others than expected."""
    parameters = _parameters(statement)
    if parameters.keys() != _VALUES.keys():
        raise Failed(f"store.order's statement has other columns now: {sorted(parameters.keys() ^ _VALUES.keys())}")
    for name, parameter in parameters.items():
        kind = parameter.partition("::")[2].removesuffix("[]")
        statement = statement.replace(parameter, f"ARRAY[({_VALUES[name]})::{kind}]")
    statement = re.sub(r"cardinality\(\$\d+\)", "1", statement)
    statement = re.sub(r"\$\d+", "now()", statement)
    return " ".join(statement.replace("DIGEST", _digest()).split())


def _parameters(statement: str) -> dict[str, str]:
    """`$1::bigint[]` and its like, by the name of the column they fill."""
    found = {}
    for arrays, table, columns in re.findall(r"unnest\(([^)]*)\)\s+AS (\w+)\(([^)]*)\)", statement):
        for parameter, column in zip(arrays.split(","), columns.split(","), strict=True):
            found[f"{table}.{column.strip()}"] = parameter.strip()
    return found


def _digest() -> str:
    price = msgspec.Raw(f'"{calls.PRICE}"'.encode())
    line = OrderLine(package_code=calls.PACKAGE, quantity=1, price=price)
    call = PlaceOrder(transaction_id="pgbench", amount=price, items=(line,))
    return priced_lines.digest("USD", _AMOUNT, call, [_AMOUNT]).hex()


def _ids(instance: Instance, database: str, count: int) -> dict[str, int]:
    """Blocks of ids that nobody else will be given."""

    async def take(opened: Database) -> dict[str, int]:
        first_now = identity.first_id_at(int(clock.now().timestamp()))
        async with opened.connection() as connection:
            return {
                f"first_{kind}_id": await store.order.next_block(connection, kind, first_now, count)
                for kind in ("order", "profile")
            }

    return instance.run(database, take)
