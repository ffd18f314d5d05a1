"""How long do a dump of many orders, and `dealer-server backup check` of it, take?"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cases.suite import YEAR, Bench
from bench.support import growth, programs
from bench.support.failure import Failed


def run(bench: Bench) -> None:
    """Delivered orders of a year with their webhooks, dumped, restored beside and audited there."""
    full = bench.instance.fresh()
    growth.load(bench.instance, full, bench.options.stored, YEAR, events=growth.DELIVERED)
    growth.vacuum(bench.instance, full)
    dump = bench.instance.folder / "orders.dump"
    orders = f"{bench.options.stored:,} orders"
    dump_command = [str(_pg_dump()), "--format=custom", f"--file={dump}", bench.instance.dsn(full)]
    seconds, _ = _timed(dump_command, {})
    bench.note("backup.dump", f"pg_dump of {orders}", {"seconds": seconds})
    environment = bench.instance.environment(full)
    # pg_restore is found beside it.
    environment["PATH"] = f"{_pg_dump().parent}{os.pathsep}{environment['PATH']}"
    check = [str(Path(sys.executable).with_name("dealer-server")), "backup", "check", str(dump), "--json"]
    seconds, said = _timed(check, environment)
    parts = json.loads(said)["seconds"]
    bench.note("backup.check", f"backup check of {orders}", {"seconds": seconds})
    for part in ("restore", "audit"):
        bench.note(f"backup.{part}", f"its {part}", {"seconds": parts[part]})
    dump.unlink()
    bench.instance.drop(full)


def _pg_dump() -> Path:
    return programs.of_postgres("pg_dump", "postgresql-client")


def _timed(command: Sequence[str], environment: dict[str, str]) -> tuple[float, str]:
    """Raises Failed where it does not end well."""
    began = time.monotonic()
    done = subprocess.run(command, env=environment or None, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{Path(command[0]).name} ended with {done.returncode}: {(done.stderr + done.stdout)[-3000:]}")
    return time.monotonic() - began, done.stdout
