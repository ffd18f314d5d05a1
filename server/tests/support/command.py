"""What a forked command does; see processes.run, which forks it with dealer_server loaded."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def main(arguments: Sequence[str], env: Mapping[str, str], out: Path, err: Path) -> None:
    """`dealer-server` with these arguments, printing into these files."""
    os.environ.clear()
    os.environ.update(env)
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY), number)
    sys.argv = ["dealer-server", *arguments]
    from dealer_server import __main__

    __main__.main()
