"""`esim-dealer fixtures run`: calls of a file, one after the other, in which later ones use answers of earlier ones."""

import argparse
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from esim_dealer.cli.arguments import Commands
from esim_dealer.cli.call import BY_PATH, request_of, without_slash
from esim_dealer.cli.output import print_json
from esim_dealer.cli.session import Session
from esim_dealer.errors import DealerError, DeliveryTimedOut

POLL_SECONDS = 0.2
_REFERENCE = re.compile(r"\$\{([^}]*)\}")


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call. `until`: repeat it until these fields of its answer are so. `code`: the refusal that is expected."""

    call: str
    name: str = ""
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    until: dict[str, Any] = msgspec.field(default_factory=dict)
    within: float = 60.0
    code: str = ""


class Fixture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: tuple[Step, ...]


class Ran(msgspec.Struct, frozen=True):
    """A step that was run: the `data` it was answered, or the code it was refused with."""

    step: str
    call: str
    data: Any = None
    code: str = "000000"


def add_commands(commands: Commands) -> None:
    actions = commands.group("fixtures", "calls from a file")
    command = actions.add("run", run, "run the calls of a file in turn; prints each answer as a JSON line")
    command.add_argument("file", type=Path, metavar="FILE", help='{"steps": [{"name", "call", "body", ...}]}')
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "\n".join(
        [
            "A step:  name    to refer to its answer",
            "         call    a path, such as esim/order",
            "         body    its JSON; ${name.orderNo} and ${name.items.0.itemNo} are values of earlier answers,",
            "                 ${uuid} is a new one each time",
            '         until   repeat it until its answer has these values, {"orderStatus": "COMPLETED"}',
            "         within  for so many seconds at most (default: 60)",
            "         code    the code it must be refused with",
        ]
    )


def run(session: Session, options: argparse.Namespace) -> None:
    """Raises ValueError for a file that is wrong, before or where it is found."""
    answers: dict[str, Any] = {}
    fixture = _read(options.file)
    for number, step in enumerate(fixture.steps, 1):
        name = step.name or str(number)
        print_json(ran := _run(session, name, step, answers))
        answers[name] = ran.data


def _read(file: Path) -> Fixture:
    try:
        fixture = msgspec.json.decode(file.read_bytes(), type=Fixture)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file}: {error}") from None
    for number, step in enumerate(fixture.steps, 1):
        if without_slash(step.call) not in BY_PATH:
            raise ValueError(f"{file}: step {number}: {step.call} is no call; one of {', '.join(BY_PATH)}")
    return fixture


def _run(session: Session, name: str, step: Step, answers: Mapping[str, Any]) -> Ran:
    operation = BY_PATH[without_slash(step.call)]
    body = msgspec.json.encode(_filled(step.body, answers)).decode()
    deadline = time.monotonic() + step.within
    while True:
        try:
            data = msgspec.to_builtins(session.dealer.call(operation, request_of(operation, body)))
        except DealerError as error:
            if step.code and error.code == step.code:
                return Ran(name, step.call, error.data, step.code)
            raise
        if step.code:
            raise ValueError(f"step {name}: {step.code} was expected, but the call succeeded")
        if all(_value(data, path) == wanted for path, wanted in step.until.items()):
            return Ran(name, step.call, data)
        if time.monotonic() > deadline:
            raise DeliveryTimedOut(f"step {name}: not {step.until} within {step.within:g} s")
        time.sleep(POLL_SECONDS)


def _filled(value: Any, answers: Mapping[str, Any]) -> Any:
    """The value with each ${...} replaced; one that is the whole text keeps the type of what it refers to."""
    if isinstance(value, dict):
        return {key: _filled(inner, answers) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, answers) for inner in value]
    if not isinstance(value, str):
        return value
    if whole := _REFERENCE.fullmatch(value):
        return _referred(whole[1], answers)
    return _REFERENCE.sub(lambda found: str(_referred(found[1], answers)), value)


def _referred(path: str, answers: Mapping[str, Any]) -> Any:
    if path == "uuid":
        return str(uuid.uuid4())
    try:
        return _value(answers, path)
    except (LookupError, TypeError, ValueError):
        raise ValueError(
            f"${{{path}}}: no earlier step has that; known steps are {', '.join(answers) or 'none'}"
        ) from None


def _value(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data[int(part)] if isinstance(data, list | tuple) else data[part]
    return data
