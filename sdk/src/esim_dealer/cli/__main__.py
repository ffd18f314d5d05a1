"""`esim-dealer`: the commands, joined.

The address and the credentials come from the environment, never from arguments, which others on the machine can read.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

import httpx2

from esim_dealer.cli import account, call, catalogue, listen, orders, profiles, webhooks
from esim_dealer.cli.arguments import Commands
from esim_dealer.cli.session import Session
from esim_dealer.client import APP_KEY, APP_SECRET, URL
from esim_dealer.errors import DealerError


def main(
    arguments: Sequence[str] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    transport: httpx2.BaseTransport | None = None,
) -> int:
    """Run one command and return its exit status: 0 done, 1 refused or not reached, 2 wrong usage."""
    options = parser().parse_args(arguments)
    try:
        with Session(environment, transport, options.json) as session:
            return options.run(session, options) or 0
    except DealerError as error:
        print(f"{error} [{type(error).__name__}]" if error.code is None else error, file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"esim-dealer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as in `esim-dealer packages | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # as when the port of `listen` is in use
        print(f"esim-dealer: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="esim-dealer",
        description="Call the eSIM Dealer Open API.",
        epilog=f"The environment names the service and the credentials: {URL}, {APP_KEY}, {APP_SECRET}.",
    )
    parser.add_argument("--json", action="store_true", help="print machine-readable lines")
    commands = Commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    for part in (account, catalogue, orders, profiles, webhooks, listen, call):
        part.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
