"""`esim-dealer call`: any operation of the API, by its path and its body. It follows from the table of operations."""

import argparse
from typing import Any

import msgspec

from esim_dealer.cli.arguments import Commands
from esim_dealer.cli.output import print_json
from esim_dealer.cli.session import Session
from esim_dealer.wire.calls import PREFIX, Request
from esim_dealer.wire.operations import OPERATIONS, Operation

BY_PATH: dict[str, Operation[Any, Any]] = {operation.path.removeprefix("/"): operation for operation in OPERATIONS}


def add_commands(commands: Commands) -> None:
    command = commands.add("call", call, "call any operation with a JSON body; prints the data of its answer as JSON")
    command.add_argument(
        "path", metavar="PATH", type=without_slash, choices=BY_PATH, help=f"one of {', '.join(BY_PATH)}"
    )
    command.add_argument("body", metavar="BODY", nargs="?", default="{}", help="a JSON object (default: {})")


def without_slash(path: str) -> str:
    """A key of BY_PATH, of a path as the documentation or an address has it: /esim/order, /open-api/v1/esim/order."""
    return path.removeprefix(PREFIX).removeprefix("/")


def call(session: Session, options: argparse.Namespace) -> None:
    operation = BY_PATH[options.path]
    print_json(session.dealer.call(operation, request_of(operation, options.body)))


def request_of(operation: Operation[Any, Any], body: str) -> Request:
    """Raises ValueError, which names a field that is unknown or wrong."""
    try:
        request = msgspec.json.decode(body, type=operation.request)
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise ValueError(f"the body of {operation.path}: {error}") from None
    known = [field.encode_name for field in msgspec.structs.fields(operation.request)]
    for name in given:
        if name not in known:
            fields = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"the body of {operation.path}: {name} is no field of it; {fields}")
    return request
