"""Which variables of the environment are settings, and what does a variable say that names a file?

A secret may stand in a file: NAME_FILE names it instead of NAME, as container platforms hand secrets over.
"""

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

PREFIX = "DEALER_"
OURS = ("DEALER_CHILD", "DEALER_FAILPOINT", "DEALER_CITUS")
"""Of no operator: what a parent hands to its child, where tests stop a process, and what `dev --cluster` runs on."""
MOST_BYTES = 65_536


class BadEnvironment(Exception):
    """A variable is unknown, or the file it names cannot be read; the message is one line and holds no secret."""


def refuse_unknown(environment: Mapping[str, str], settings: Collection[str], secrets: Collection[str]) -> None:
    """`settings`: the names of all variables; those of `secrets` may also end in _FILE. Raises BadEnvironment."""
    known = {*settings, *(f"{name}_FILE" for name in secrets), *OURS}
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), sorted(known.difference(OURS)), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadEnvironment(f"{name} is not a setting{hint}")


def secret(environment: Mapping[str, str], name: str) -> str | None:
    """The content of the file that NAME_FILE names, without white space around it; None where it names none. Raises
    BadEnvironment."""
    path = environment.get(f"{name}_FILE")
    if not path:
        return None
    if environment.get(name):
        raise BadEnvironment(f"{name} and {name}_FILE are both set: one of them is expected")
    try:
        with Path(path).open("rb") as file:
            text = file.read(MOST_BYTES).decode().strip()
    except OSError as error:  # without the path: a secret may have been put there
        raise BadEnvironment(f"{name}_FILE: {error.strerror}") from None
    except ValueError:  # not UTF-8, or a zero byte in the path
        raise BadEnvironment(f"{name}_FILE: a text file in UTF-8 is expected") from None
    if not text:
        raise BadEnvironment(f"{name}_FILE: the file is empty")
    return text
