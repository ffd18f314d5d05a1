"""`esim-dealer`: the commands, joined.

The address and the credentials come from the environment or a login, never from arguments, which others on the machine
can read.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

import esim_dealer
from esim_dealer.cli import (
    account,
    call,
    catalogue,
    completion,
    fixtures,
    listen,
    login,
    logs,
    mcp,
    orders,
    profiles,
    trigger,
    webhooks,
)
from esim_dealer.cli.arguments import Commands
from esim_dealer.cli.parsing import Parser, WrongUsage
from esim_dealer.cli.session import Session
from esim_dealer.client import APP_KEY, APP_SECRET, URL
from esim_dealer.errors import DealerError, DeliveryFailed, DeliveryTimedOut, OutcomeUnknown
from esim_dealer.wire.envelope import encoder


def main(
    arguments: Sequence[str] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    transport: httpx2.BaseTransport | None = None,
) -> int:
    """Run one command and return its exit status: 0 done, 1 refused or not reached, 2 wrong usage."""
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser().read(arguments)
        if options.run not in (login.log_in, login.log_out):
            environment = login.with_login(environment, options.login)
        with Session(environment, transport, options.json) as session:
            return options.run(session, options) or 0
    except DealerError as error:
        _print_error(error, f"{error} [{type(error).__name__}]" if error.code is None else str(error), as_json)
        return 1
    except (WrongUsage, ValueError) as error:
        _print_error(error, f"esim-dealer: {error}", as_json)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as in `esim-dealer packages | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # as when the port of `listen` is in use
        _print_error(error, f"esim-dealer: {error}", as_json)
        return 1


def _print_error(error: Exception, line: str, as_json: bool) -> None:
    """One line on standard error; with --json an object of what is known."""
    if not as_json:
        print(line, file=sys.stderr)
        return
    wrong_usage = isinstance(error, ValueError)
    known: dict[str, Any] = {"type": "WrongUsage" if wrong_usage else type(error).__name__, "message": str(error)}
    if isinstance(error, DealerError):
        known |= {
            "message": error.message,
            "code": error.code,
            "requestId": error.request_id,
            "traceId": error.trace_id,
            "httpStatus": error.http_status,
            "data": error.data or None,
        }
    if isinstance(error, DeliveryFailed | DeliveryTimedOut):
        known["order"] = error.snapshot
    if isinstance(error, OutcomeUnknown):
        known["transactionId"] = error.transaction_id
    told = {name: value for name, value in known.items() if value is not None}
    print(encoder.encode({"error": told}).decode(), file=sys.stderr)


def parser() -> Parser:
    parser = Parser(
        prog="esim-dealer",
        description="Call the eSIM Dealer Open API.",
        epilog=f"Address and keys come from the environment ({URL}, {APP_KEY}, {APP_SECRET}), or from a login.",
    )
    parser.add_argument("--version", action="version", version=f"esim-dealer {esim_dealer.__version__}")
    parser.add_argument("--json", action="store_true", help="print machine-readable lines, errors too")
    parser.add_argument("--login", metavar="NAME", help="use this login")
    parser.set_defaults(root=parser)
    commands = Commands(parser.add_subparsers(title="commands", metavar="COMMAND"))
    for part in (
        *(login, account, catalogue, orders, profiles, webhooks, listen, trigger, logs, fixtures, mcp, call),
        completion,
    ):
        part.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
