"""What do refunds cost? Ours, decided in batches, beside pgbench that sends the same statements one by one.

The script is recorded: a RefundBatcher refunds one order through a session that keeps what it sends; what names that
order becomes a variable of pgbench, so that statements and script change together.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import asyncpg

from bench.cases.suite import Bench, audit, target_of
from bench.load import pgbench
from bench.support import growth, measure
from bench.support.calls import PRICE, Calls, Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import Load
from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.db.session import Session
from dealer_server.operations.refunds.request import RefundBatcher
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.tenants import data_key
from esim_dealer.wire.calls import RefundItem, RefundOrder, RefundProfile

_PRICE = money.parse(PRICE, "USD")
MOST = 8_000  # refunds a second; more are not kept ready
MOST_ONE_BY_ONE = 2_000
_OVER = timedelta(minutes=30)


class Range(NamedTuple):
    """Delivered orders of the hot dealer, each of one profile: their ids are `first`, `first + step`, …"""

    first: int
    step: int
    number: int

    def split(self, count: int) -> "tuple[Range, Range]":
        """The first `count` of them, and the rest."""
        return self._replace(number=count), Range(self.first + count * self.step, self.step, self.number - count)


def load(instance: Instance, database: str, count: int) -> Range:
    growth.load(instance, database, count, _OVER, ended=timedelta(minutes=5), dealers=[instance.hot])

    async def look(opened: Database) -> Range:
        async with opened.connection() as connection:
            ids = [row[0] for row in await connection.fetch("SELECT order_id FROM orders ORDER BY order_id")]
        if {after - before for before, after in itertools.pairwise(ids)} != {ids[1] - ids[0]}:
            raise Failed("the orders' ids do not follow each other evenly, as pgbench's script takes for granted")
        return Range(ids[0], ids[1] - ids[0], len(ids))

    return instance.run(database, look)


def refund_calls(dealer: Dealer, orders: Iterator[int]) -> Calls:
    """A refund of each order's profile, which is named."""
    return Calls("/esim/refund", ((dealer, _body(order_id)) for order_id in orders))


def ids(orders: Range) -> Iterator[int]:
    """Each once. Raises Failed where there are no more."""
    yield from range(orders.first, orders.first + orders.number * orders.step, orders.step)
    raise Failed(f"more than {orders.number} refunds were asked for: raise bench.cases.refunds.MOST")


def _body(order_id: int) -> bytes:
    return b'{"orderNo":"%b","items":[{"itemNo":"%b","profiles":[{"profileId":%d}]}]}' % (
        identity.order_no(order_id).encode(),
        identity.item_no(order_id, 0).encode(),
        order_id,
    )


# One refund per transaction


def one_by_one(instance: Instance, database: str, orders: Range, clients: int, seconds: int) -> pgbench.Placed:
    """What pgbench makes of the orders. The first of them shows how it is done."""
    sample, rest = orders.split(1)
    variables = {
        "n": -1,
        "clients": clients,
        "tenant": instance.hot.tenant_id,
        "first": rest.first,
        "step": rest.step,
    }
    return pgbench.execute(instance, database, script(instance, database, sample.first), variables, clients, seconds)


def script(instance: Instance, database: str, order_id: int) -> str:
    """pgbench's script; this order is refunded to learn it."""
    sent = instance.run(database, lambda opened: _recorded(instance, opened, order_id))
    known: dict[int, str] = {instance.hot.tenant_id: "tenant", order_id: "order_id"}
    lines = ["\\set n :n + 1", "\\set order_id :first + (:n * :clients + :client_id) * :step", "BEGIN;"]
    for one in sent:
        text = _inlined(" ".join(one.sql.split()), one.arguments, known)
        if " FROM wallet " in one.sql and not lines[-1].endswith("\\gset"):
            lines += [f"{text} \\gset"]
            wallet = one.rows[0]
            known |= {wallet["version"] + 1: "next_version", wallet["balance"] + _PRICE: "next_balance"}
            lines += ["\\set next_version :version + 1", f"\\set next_balance :balance + {_PRICE}"]
        elif "id_block" in one.sql:
            known[one.rows[0][0]] = "refund_id"
            lines.append(f"{text} AS refund_id \\gset")
        elif "nextval" in one.sql:
            known[one.rows[0][0]] = "nextval"
            lines.append(f"{text} \\gset")
        else:
            lines.append(f"{text};")
    return "\n".join([*lines, "COMMIT;", ""])


class Sent(NamedTuple):
    sql: str
    arguments: Sequence[Any]
    rows: Sequence[asyncpg.Record]


class _Recorder(Session):
    """Keeps what is sent through it."""

    def __init__(self, dsn: str):
        super().__init__(dsn, {})
        self.sent: list[Sent] = []

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        rows = await super().fetch(sql, *args)
        self.sent.append(Sent(sql, args, rows))
        return rows


async def _recorded(instance: Instance, opened: Database, order_id: int) -> list[Sent]:
    async with opened.connection() as connection:
        keys = await data_key.load(connection, instance.master_keys)
    recorder = _Recorder(opened.dsn)
    opened.session = lambda **_: recorder
    batcher = RefundBatcher(opened, keys, Links("https://bench.example"), lambda *_: "AT_ONCE", clock.now)
    profiles = (RefundProfile(profile_id=order_id),)
    item = RefundItem(item_no=identity.item_no(order_id, 0), profiles=profiles)
    await batcher.refund(instance.hot.tenant_id, RefundOrder(order_no=identity.order_no(order_id), items=(item,)))
    await batcher.close()
    return recorder.sent


def _inlined(sql: str, arguments: Sequence[Any], known: Mapping[int, str]) -> str:
    """The statement with its arguments in place."""
    return re.sub(r"\$(\d+)", lambda found: _literal(arguments[int(found[1]) - 1], known), sql)


def _literal(value: Any, known: Mapping[int, str]) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"(:{known[value]})::bigint" if value in known else str(value)
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    if isinstance(value, datetime):
        return "now()"
    if isinstance(value, timedelta):
        return f"interval '{value.total_seconds()} s'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"ARRAY[{', '.join(_literal(one, known) for one in value)}]" if len(value) else "'{}'"


def run(bench: Bench) -> None:
    """Refunds of one profile through `serve`, and what pgbench does one by one with the same statements."""
    seconds = bench.options.seconds + measure.TRIAL_SECONDS
    for _ in range(bench.options.runs):
        database = bench.instance.fresh()
        ours, count = MOST * (seconds + 1), (MOST + MOST_ONE_BY_ONE) * (seconds + 1)
        mine, theirs = load(bench.instance, database, count).split(ours)
        growth.vacuum(bench.instance, database)
        with bench.instance.serve(database) as served:
            bench.measure(_refunds(bench, mine), target_of(served))
        audit(bench, database, "refunds.audit", "refunds: audit of all of it")
        growth.vacuum(bench.instance, database)  # serve renews its plans as tables grow, pgbench does not
        _refunds_one_by_one(bench, database, theirs)
        bench.instance.drop(database)


def _refunds(bench: Bench, orders: Range) -> Load:
    """Every order is refunded once, over all runs."""
    order_ids = ids(orders)
    return Load(
        "refunds.hot.64",
        "refund of one profile, one dealer, 64 connections",
        64,
        lambda: refund_calls(bench.instance.hot, order_ids),
        writes=True,
        most=MOST,
    )


def _refunds_one_by_one(bench: Bench, database: str, orders: Range) -> None:
    warm_up, counted = orders.split(MOST_ONE_BY_ONE * measure.TRIAL_SECONDS)
    ranges = iter([warm_up, counted])
    bench.one_by_one(
        "pgbench.refunds",
        "pgbench, refunds of one wallet, 16 clients",
        lambda seconds: one_by_one(bench.instance, database, next(ranges), 16, seconds),
    )
