"""`make failover`: kills, freezes, cuts off and switches the leader while a dealer buys, and compares at the end."""

import asyncio
import base64
import contextlib
import datetime
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import asyncpg
from deploy.patroni.client import PACKAGE, PRICE, Dealer
from deploy.patroni.nodes import Cluster, LabError, Node, account, until

from dealer_server.rules.orders import identity

ROOT = Path(__file__).parents[2]
PORTS = (18_311, 18_312)
WORK_METRICS = 18_331
OPENING = 1_000_000
THREADS, PAUSE = 8, 0.02
QUIET_SECONDS = 3.0  # of buying before a fault and after it
CATALOGUE = f"""packageCode,packageName,locationCode,price,currency,dataType,dataBytes,duration,supplier
{PACKAGE},Lab 1 GB,FR,{PRICE},USD,TOTAL,1GB,30,simulated
"""


@dataclass
class Fault:
    """What was done to the leader and what was seen. Seconds; `promoted` and `unready` are counted from the fault,
    `first_write` from the promotion."""

    kind: str
    leader: str
    promoted: float = 0.0
    first_write: float = 0.0
    unready: float | None = None
    longest_call: float = 0.0
    unknown: int = 0
    refused: int = 0
    lost_lines: list[int] = field(default_factory=list)
    back_lines: list[int] = field(default_factory=list)


class Lab:
    def __init__(self, folder: Path):
        self.folder = folder
        self.cluster = Cluster(folder, str(ROOT / "deploy/patroni/.venv/bin/patroni"))
        self.logs: dict[str, Path] = {}
        self._processes: list[subprocess.Popen] = []
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DEALER_", "DATABASE_"))},
            "DATABASE_URL": self.cluster.dsn,
            "DEALER_ENVIRONMENT": "test",
            "DEALER_SEALING_KEYS": "lab:" + base64.b64encode(secrets.token_bytes(32)).decode(),
            "DEALER_SUPPLIER_SPEED": "200",
            "DEALER_CONSOLE": "",
        }

    def command(self, *arguments: str) -> str:
        program = [sys.executable, "-m", "dealer_server", *arguments]
        done = subprocess.run(program, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start_service(self) -> Dealer:
        """Two `serve` and a `work`; and a dealer with money."""
        asyncio.run(_create_database(self.cluster.leader()))
        self.command("migrate")
        catalogue = self.folder / "packages.csv"
        catalogue.write_text(CATALOGUE)
        self.command("catalog", "import", str(catalogue))
        made = json.loads(
            self.command("tenant", "create", "--name", "Lab", "--balance", str(OPENING), "--qps", "0", "--json")
        )
        for port in PORTS:
            metrics = f"127.0.0.1:{port + 10}"
            self._start(f"serve{port}", "serve", "--port", str(port), "--share-nothing", DEALER_SERVE_METRICS=metrics)
        self._start("work", "work", DEALER_METRICS=f"127.0.0.1:{WORK_METRICS}")
        for port in PORTS:
            until("serve is ready", lambda port=port: ready(port))
        return Dealer([("127.0.0.1", port) for port in PORTS], made["appKey"], made["appSecret"])

    def _start(self, name: str, *arguments: str, **env: str) -> None:
        self.logs[name] = self.folder / f"{name}.log"
        program = [sys.executable, "-m", "dealer_server", *arguments]
        with self.logs[name].open("wb") as log:
            self._processes.append(subprocess.Popen(program, env={**self.env, **env}, stdout=log, stderr=log))

    def stop_service(self) -> list[int]:
        """The exit statuses."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        return [process.wait(60) for process in self._processes]

    def kill_service(self) -> None:
        for process in self._processes:
            process.kill()

    def said(self, event: str) -> list[int]:
        """How often each process has logged it."""
        return [log.read_text(errors="replace").count(event) for log in self.logs.values()]


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.HTTPError, OSError):
        return False


async def _create_database(leader: Node | None) -> None:
    assert leader is not None
    connection = await asyncpg.connect(leader.dsn)
    await connection.execute("CREATE DATABASE esim")
    await connection.close()


async def promoted(nodes: list[Node], seconds: float = 120) -> float:
    """When one of these, standbys so far, has become the leader: time.monotonic()."""
    connections = [await asyncpg.connect(node.dsn, timeout=10) for node in nodes]
    try:
        async with asyncio.timeout(seconds):
            while True:
                for connection in connections:
                    # A standby that follows the new leader may start anew meanwhile.
                    with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                        if not await connection.fetchval("SELECT pg_is_in_recovery()"):
                            return time.monotonic()
                await asyncio.sleep(0.02)
    finally:
        for connection in connections:
            connection.terminate()


def kill(cluster: Cluster, leader: Node) -> Callable[[], None]:
    leader.signal(signal.SIGKILL)
    return leader.start


def stop(cluster: Cluster, leader: Node) -> Callable[[], None]:
    leader.signal(signal.SIGSTOP)
    return lambda: leader.signal(signal.SIGCONT)


def partition(cluster: Cluster, leader: Node) -> Callable[[], None]:
    leader.cut(True)
    return lambda: leader.cut(False)


def switchover(cluster: Cluster, leader: Node) -> Callable[[], None]:
    asking = threading.Thread(target=cluster.switch, args=(leader,))
    asking.start()
    return asking.join


FAULTS = {"kill": kill, "stop": stop, "partition": partition, "switchover": switchover}


def inflict(lab: Lab, dealer: Dealer, kind: str) -> Fault:
    """One fault, from a whole cluster to a whole cluster."""
    leader = lab.cluster.wait_whole()
    time.sleep(QUIET_SECONDS)
    fault = Fault(kind, leader.name)
    lost, back, seen = lab.said("database_lost"), lab.said("database_back"), len(dealer.answers)
    others = [node for node in lab.cluster.nodes if node is not leader]
    with promotion_watched(others) as when, unready_watched() as unready:
        time.sleep(0.5)  # both look by now
        began = time.monotonic()
        heal = FAULTS[kind](lab.cluster, leader)
        at = when()
        fault.promoted = at - began
        fault.first_write = until("an order is acknowledged", lambda: _first_after(dealer, at)) - at
        fault.unready = unready() - began if unready() else None
    time.sleep(QUIET_SECONDS)
    heal()
    lab.cluster.wait_whole()
    time.sleep(QUIET_SECONDS)
    answers = [one for one in dealer.answers[seen:] if one.answered > began]
    fault.longest_call = max(one.answered - one.asked for one in answers)
    fault.unknown = sum(one.code != "000000" and (one.outcome == "UNKNOWN" or not one.code) for one in answers)
    fault.refused = sum(one.code == "900001" for one in answers) - fault.unknown
    fault.lost_lines = [now - then for now, then in zip(lab.said("database_lost"), lost, strict=True)]
    fault.back_lines = [now - then for now, then in zip(lab.said("database_back"), back, strict=True)]
    return fault


def _first_after(dealer: Dealer, at: float) -> float:
    """When the first order that was asked for after the promotion, or answered after it, was acknowledged."""
    return min((one.answered for one in dealer.answers if one.code == "000000" and one.answered > at), default=0.0)


@contextlib.contextmanager
def promotion_watched(nodes: list[Node]) -> Iterator[Callable[[], float]]:
    """In a thread; what it gives waits for it."""
    found: list[float | Exception] = []

    def watch() -> None:
        try:
            found.append(asyncio.run(promoted(nodes)))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=watch)
    thread.start()

    def when() -> float:
        thread.join()
        if isinstance(found[0], Exception):
            raise LabError(f"nobody was promoted: {found[0]!r}")
        return found[0]

    yield when
    thread.join()


@contextlib.contextmanager
def unready_watched() -> Iterator[Callable[[], float]]:
    """When a `serve` first said that it is not ready; 0.0 if it never did."""
    over, first = threading.Event(), [0.0]

    def watch() -> None:
        while not over.wait(0.05):
            if not ready(PORTS[0]):
                first[0] = time.monotonic()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    yield lambda: first[0]
    over.set()
    thread.join()


async def compared(cluster: Cluster, dealer: Dealer) -> dict[str, int]:
    """What the leader holds against what the dealer was told."""
    connection = await asyncpg.connect(cluster.dsn)
    orders = await connection.fetch("SELECT transaction_id, order_id FROM orders")
    balance = await connection.fetchval("SELECT balance FROM wallet")
    spent = await connection.fetchval("SELECT sum(amount) FROM orders")
    undelivered = await connection.fetchval("SELECT count(*) FROM orders WHERE delivery_status <> 'DELIVERED'")
    await connection.close()
    placed = {row[0]: identity.order_no(row[1]) for row in orders}
    return {
        "acknowledged": len(dealer.acknowledged),
        "orders": len(orders),
        "lost": sum(placed.get(key) != number for key, number in dealer.acknowledged.items()),
        "doubled": len(orders) - len(placed) + len(dealer.doubled),
        "refused": len(dealer.refused),
        "refused and placed": len(dealer.refused & placed.keys()),
        "not acknowledged": len(placed.keys() - dealer.acknowledged.keys()),
        "money astray": OPENING * 10_000 - int(balance) - int(spent),
        "undelivered": undelivered,
    }


def main() -> None:
    counts = {kind: int(os.environ.get(f"{kind.upper()}S", "0")) for kind in FAULTS}
    with tempfile.TemporaryDirectory(prefix="esim-dealer-failover-") as made:
        folder = Path(os.environ.get("FOLDER") or made)
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise LabError(f"{folder} is not empty")
        folder.chmod(0o755)
        if user := account():
            os.chown(folder, user.pw_uid, user.pw_gid)
        lab = Lab(folder)
        if not lab.cluster.network:
            counts["partition"] = 0
        try:
            outcome = trial(lab, [kind for kind, count in counts.items() for _ in range(count)])
        finally:
            lab.kill_service()
            lab.cluster.stop()
    report(outcome)


def trial(lab: Lab, kinds: list[str]) -> dict:
    lab.cluster.start()
    dealer = lab.start_service()
    dealer.begin(THREADS, PAUSE)
    faults = []
    for number, kind in enumerate(kinds, 1):
        fault = inflict(lab, dealer, kind)
        print(f"{number} of {len(kinds)}: {fault}", flush=True)
        faults.append(asdict(fault))
    dealer.end()
    placed = dealer.settle()
    until(
        "everything is delivered",
        lambda: asyncio.run(compared(lab.cluster, dealer))["undelivered"] == 0,
    )
    figures = asyncio.run(compared(lab.cluster, dealer)) | {"unknown, placed": placed}
    audit = lab.command("audit")
    statuses = lab.stop_service()
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "faults": faults,
        "figures": figures,
        "audit": audit.strip().splitlines()[-3:],
        "statuses": statuses,
        "tracebacks": lab.said("Traceback"),
        "lines": [len(log.read_text(errors="replace").splitlines()) for log in lab.logs.values()],
    }


def report(outcome: dict) -> None:
    """The table, and the JSON under bench/results."""
    head = ("kind", "times", "promoted after", "first write after it", "not ready after", "longest call", "unknown")
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for kind in FAULTS:
        if faults := [one for one in outcome["faults"] if one["kind"] == kind]:
            unready = [one["unready"] for one in faults if one["unready"] is not None]
            cells = [kind, str(len(faults)), *(_range([one[name] for one in faults]) for name in
                     ("promoted", "first_write")), _range(unready), _range([one["longest_call"] for one in faults]),
                     str(sum(one["unknown"] for one in faults))]  # fmt: skip
            print("| " + " | ".join(cells) + " |")
    for name, value in outcome["figures"].items():
        print(f"{name}: {value}")
    print("\n".join(outcome["audit"]))
    lines = [(one["lost_lines"], one["back_lines"]) for one in outcome["faults"]]
    print(f"lines of database_lost, database_back by process and fault: {lines}; tracebacks {outcome['tracebacks']}")
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    kept = ROOT / f"bench/results/{outcome['at'][:10]}-{revision.stdout.strip()}-failover.json"
    kept.write_text(json.dumps(outcome, indent=1) + "\n")
    print(f"kept as {kept.relative_to(ROOT)}")
    figures = outcome["figures"]
    if any(figures[name] for name in ("lost", "doubled", "refused and placed", "not acknowledged", "money astray")):
        raise SystemExit("acknowledged orders and the database do not agree")


def _range(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f} s" if values else "–"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    try:
        main()
    except LabError as error:
        raise SystemExit(f"failover: {error}") from None
