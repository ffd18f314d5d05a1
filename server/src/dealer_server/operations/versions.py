"""Was something changed while somebody had a form of it open? The form carries the version of what it shows; a write of
a field that others have changed since is refused, so that nothing is overwritten unseen.

    page       Html(version=versions.version_of(texts))    with {{ version_field(version) }} in its form
    view       operation(…, version=context.form.get("version"))
    operation  versions.require(version, stored, yours)    in its transaction, once the row is locked

The console answers ChangedMeanwhile with the form as it was filled in and both values of each such field
(console/endpoint.py).
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from dealer_server.operations.errors import OperatorError

ABSENT = ""
"""The version of what is not there yet."""


class Field(NamedTuple):
    """A field with two values as operators write them: what is stored now, and what was typed."""

    name: str
    now: str
    yours: str


class ChangedMeanwhile(OperatorError):
    """Nothing was written. `version`: of what is stored now, for the next try; `fields`: those that others have changed
    to something else than what was typed."""

    def __init__(self, version: str, fields: Iterable[Field]):
        self.version = version
        self.fields = list(fields)
        told = "; ".join(
            f"{field.name} is {field.now or '–'} now, yours is {field.yours or '–'}" for field in self.fields
        )
        super().__init__(f"Not saved, because it was changed since you opened it: {told}")


def version_of(stored: Mapping[str, str]) -> str:
    """Of fields as operators write them: each by its name, with a short hash of its text. "" for none."""
    return _written({name: fingerprint(text) for name, text in stored.items()})


def require(version: str | None, stored: Mapping[str, str], yours: Mapping[str, str]) -> None:
    """`yours`: the fields that are to be written. A field without text is as one that is not there. `version` None:
    whatever is stored may be overwritten. Raises ChangedMeanwhile."""
    if version is None:
        return
    shown = {unquote(name): one for name, _, one in (part.partition("=") for part in version.split())}
    changed = [
        Field(name, now, text)
        for name, text in yours.items()
        if (now := stored.get(name, "")) != text and shown.get(name, fingerprint("")) != fingerprint(now)
    ]
    if changed:
        current = {name: fingerprint(stored.get(name, "")) for name in yours}
        raise ChangedMeanwhile(_written(shown | current), changed)


def _written(fingerprints: Mapping[str, str]) -> str:
    return " ".join(f"{quote(name, '')}={one}" for name, one in fingerprints.items())


def fingerprint(value: object, key: bytes = b"") -> str:
    """16 hex digits that change with a value made of structs, tuples, texts and numbers; `key` for one with secrets."""
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=8, key=key).hexdigest()
