"""Which suppliers are there? One row for each kind of remote supplier: what its operator sets, and its class.

How one is added: docs/guides/add-a-supplier.md.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from dealer_server.suppliers.builtin import simulated
from dealer_server.suppliers.builtin.stock import Stock
from dealer_server.suppliers.chain.client import Chain, ChainSettings
from dealer_server.suppliers.contract import Caps, Remote
from dealer_server.suppliers.es2plus.client import Es2Plus, Es2PlusSettings
from dealer_server.suppliers.rt.upstream import RtSettings, RtUpstream


class Kind(NamedTuple):
    """`caps`: what is known of its suppliers whatever their settings, for those who do not call them."""

    settings: type[msgspec.Struct]
    make: Callable[[str, Any], Remote]
    caps: Caps = Caps()


KINDS: dict[str, Kind] = {
    "es2plus": Kind(Es2PlusSettings, Es2Plus),
    "rt_upstream": Kind(RtSettings, RtUpstream, RtUpstream.CAPS),
    "chain": Kind(ChainSettings, Chain, Chain.CAPS),
}
BUILTIN = (simulated.CODE, Stock.code)
_CAPS = {simulated.CODE: simulated.Simulated.CAPS, Stock.code: Stock.caps} | {
    kind: row.caps for kind, row in KINDS.items()
}
_NONE = Caps(lifecycle=None)  # of a kind that this release does not have


class BadSettings(Exception):
    """One line that names the setting, what was wrong and what is accepted; it holds no value. `faults`: the same by
    settings."""

    def __init__(self, line: str, faults: Mapping[str, str] | None = None):
        super().__init__(line)
        self.faults = faults or {}


def caps_of(kind: str) -> Caps:
    """What suppliers of a kind, remote or built in, can do whatever their settings."""
    return _CAPS.get(kind, _NONE)


def read(kind: str, text: bytes) -> msgspec.Struct:
    """The settings in a JSON document. Raises BadSettings."""
    if kind not in KINDS:
        raise BadSettings(f"kind: {kind!r} is none of {', '.join(KINDS)}")
    try:
        return msgspec.json.decode(text, type=KINDS[kind].settings)
    except msgspec.ValidationError as error:
        raise BadSettings(f"settings of a {kind}: {error}", faults(kind, msgspec.json.decode(text))) from None
    except msgspec.DecodeError:
        raise BadSettings("settings: not a JSON document") from None


def faults(kind: str, document: object) -> dict[str, str]:
    """All that is wrong with settings, by their names; "" for what concerns none alone."""
    if not isinstance(document, dict):
        return {"": "a JSON object is needed"}
    values: dict[str, object] = document
    known = {field.encode_name: field for field in msgspec.structs.fields(KINDS[kind].settings)}
    found = {name: "is no setting" for name in values if name not in known}
    for name, field in known.items():
        if name in values:
            found |= _faults_of(values[name], field.type, [name])
        elif field.required:
            found[name] = "is needed"
    return found or _faults_of(values, KINDS[kind].settings, [*known])


def _faults_of(value: object, wanted: Any, names: list[str]) -> dict[str, str]:
    """Of one setting or, with all their names, of the settings together: their lines begin with what they concern."""
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        if len(names) == 1:
            return {names[0]: str(error)}
        lines = str(error).split("; ")
        return {name: line for line in lines for name in _concerned(line, names) or [""]}
    return {}


def _concerned(line: str, names: list[str]) -> list[str]:
    beginning = line.partition(" must ")[0].split()
    return [name for name in names if name in beginning]


def make(code: str, kind: str, settings: bytes) -> Remote:
    """Raises BadSettings."""
    return KINDS[kind].make(code, read(kind, settings))
