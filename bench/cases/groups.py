"""Which groups are there? Each round measures every row of its group once, so that a
machine that drifts disturbs all of them alike."""

from collections.abc import Callable

from bench.cases import (
    dead,
    dev,
    life,
    locked,
    memory,
    orders,
    processes,
    reads,
    recharges,
    refunds,
    restarts,
    rt,
    statements,
    stored,
    traces,
)
from bench.cases.cluster import group as cluster
from bench.cases.console import group as console
from bench.cases.suite import Bench
from bench.cases.webhooks import group as webhooks

GROUPS: dict[str, Callable[[Bench], None]] = {
    "orders": orders.run,
    "locked": locked.run,
    "processes": processes.run,
    "restarts": restarts.run,
    "refunds": refunds.run,
    "recharges": recharges.run,
    "reads": reads.run,
    "rt": rt.run,
    "life": life.run,
    "statements": statements.run,
    "dead": dead.run,
    "traces": traces.run,
    "webhooks": webhooks.run,
    "dev": dev.run,
    "memory": memory.run,
    "stored": stored.run,
    "backup": stored.backup,
    "console": console.run,
    "cluster": cluster.run,
}
DEFAULT_GROUPS = [name for name in GROUPS if name != "cluster"]
