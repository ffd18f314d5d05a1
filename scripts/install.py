"""`python scripts/install.py ARGUMENTS`: `pip install ARGUMENTS` into the environment whose python runs it, by uv, which
takes a tenth of the time; by pip where uv is not to be had. uv is told what pip is set to: indexes, certificates."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements/installer.lock"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
# How uv names what is set for pip.
NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def settings() -> dict[str, str]:
    """What pip is set to, as variables for uv."""
    listed = subprocess.run((*PIP, "config", "list"), capture_output=True, text=True, check=False).stdout
    found = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        uv_name = NAMES.get(name.rpartition(".")[2])
        if uv_name is not None:
            found[uv_name] = value.strip("'\"")
    return found


@contextmanager
def uv() -> Iterator[str | None]:
    """The uv that is on the PATH, else one that is removed after use; None where it cannot be had."""
    if found := shutil.which("uv"):
        yield found
        return
    with tempfile.TemporaryDirectory() as folder:
        got = subprocess.run(
            (*PIP, "install", "--require-hashes", "--no-deps", "--target", folder, "-r", str(LOCK)),
            stderr=subprocess.DEVNULL,
            check=False,
        )
        yield str(Path(folder) / "bin/uv") if got.returncode == 0 else None


def main(arguments: list[str]) -> int:
    """The exit status of uv, or of pip."""
    begun = time.monotonic()
    what = ", ".join(Path(one).stem for one in arguments if not one.startswith("-"))
    print(f"installing {what} ...", end=" ", flush=True)
    with uv() as found:
        if found is not None:
            command = (found, "pip", "install", "--quiet", "--python", sys.executable, *arguments)
            if subprocess.run(command, env=settings() | os.environ, check=False).returncode == 0:
                print(f"by uv in {time.monotonic() - begun:.1f} s")
                return 0
    status = subprocess.run((*PIP, "install", *arguments), check=False).returncode
    if status == 0:
        print(f"by pip in {time.monotonic() - begun:.1f} s")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
