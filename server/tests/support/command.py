"""What a forked `dealer-server` does; see processes, which forks it with dealer_server loaded."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path


def to_files(arguments: Sequence[str], env: Mapping[str, str], out: Path, err: Path) -> None:
    """`dealer-server` with these arguments, printing into these files."""
    _main(arguments, env, os.open(out, os.O_WRONLY), os.open(err, os.O_WRONLY))


def to_pipes(arguments: Sequence[str], env: Mapping[str, str], out: Connection, err: Connection) -> None:
    """`dealer-server` with these arguments, printing into these pipes."""
    _main(arguments, env, out.fileno(), err.fileno())


def _main(arguments: Sequence[str], env: Mapping[str, str], out: int, err: int) -> None:
    os.environ.clear()
    os.environ.update(env)
    for number, file in ((1, out), (2, err)):
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["dealer-server", *arguments]
    from dealer_server import __main__, failpoints

    importlib.reload(failpoints)  # it reads the environment as it is loaded
    __main__.main()
