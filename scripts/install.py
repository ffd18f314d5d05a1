"""`python scripts/install.py ARGUMENTS [--then ARGUMENTS ...]`: `pip install ARGUMENTS`, one after the other, into the
environment whose python runs it.

By uv, which takes a tenth of the time: the one on the PATH, else one that is fetched and removed. By pip where uv is
not to be had. uv is told what pip is set to: indexes, certificates."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements/installer.lock"
THEN = "--then"
# How uv names what is set for pip.
NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def output(*command: str) -> str | None:
    """What it prints; None where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


@cache
def pip() -> tuple[str, ...]:
    """The pip of the python that made this environment; else this environment's own, which is made where needed."""
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    python = str(base)
    if importlib.util.find_spec("pip") is not None or output(python, "-m", "pip", "--version") is None:
        own_pip()
        python = sys.executable
    return python, "-m", "pip", "--quiet", "--disable-pip-version-check"


def own_pip() -> None:
    if importlib.util.find_spec("pip") is None and output(sys.executable, "-m", "ensurepip") is None:
        sys.exit("neither uv nor pip is there; on Debian: apt-get install python3-venv")


@cache
def settings() -> dict[str, str]:
    """What pip is set to, as variables for uv."""
    found = {}
    for line in (output(*pip(), "config", "list") or "").splitlines():
        name, _, value = line.partition("=")
        uv_name = NAMES.get(name.rpartition(".")[2])
        if uv_name is not None:
            found[uv_name] = value.strip("'\"")
    return found


@contextmanager
def uv() -> Iterator[str | None]:
    """None where it cannot be had."""
    if found := shutil.which("uv"):
        yield found
        return
    print("fetching uv ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        got = output(*pip(), "install", "--require-hashes", "--no-deps", "--target", folder, "-r", str(LOCK))
        yield None if got is None else str(Path(folder, "bin/uv"))


def install(program: str | None, arguments: Sequence[str]) -> int:
    """The exit status. `program`: uv."""
    begun = time.monotonic()
    what = ", ".join(Path(one).stem for one in arguments if not one.startswith("-"))
    print(f"installing {what} ...", end=" ", flush=True)
    if program is not None:
        command = (program, "pip", "install", "--quiet", "--python", sys.executable, *arguments)
        environment = (settings() if shutil.which("uv") is None else {}) | os.environ
        if subprocess.run(command, env=environment, check=False).returncode == 0:
            print(f"by uv in {time.monotonic() - begun:.1f} s")
            return 0
    status = by_pip(arguments)
    if status == 0:
        print(f"by pip in {time.monotonic() - begun:.1f} s")
    return status


def by_pip(arguments: Sequence[str]) -> int:
    """The exit status. The halves of locks, which name all that is needed, are installed side by side: pip computes
    most of its time, on one core. As with uv, modules are left to be compiled when they are first used."""
    command = (*pip(), "--python", sys.executable, "install", "--no-compile")
    text = "\n".join(Path(one).read_text() for one in arguments if one.endswith(".lock"))
    pinned = {name: requirement for requirement, name in re.findall(r"^((\S+)==.*(?:\n .*)*)", text, re.MULTILINE)}
    if not pinned:
        return subprocess.run((*command, *arguments), check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        running: list[subprocess.Popen[bytes]] = []
        for half in (0, 1):
            lock = Path(folder, f"{half}.lock")
            lock.write_text("\n".join(list(pinned.values())[half::2]))
            running.append(subprocess.Popen((*command, "--require-hashes", "--no-deps", "-r", str(lock))))
        return next((status for status in [one.wait() for one in running] if status), 0)


def main(arguments: Sequence[str]) -> int:
    """The first exit status that is not 0."""
    parts = [list(part) for is_part, part in groupby(arguments, lambda one: one != THEN) if is_part]
    with uv() as program:
        return next((status for part in parts if (status := install(program, part))), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
