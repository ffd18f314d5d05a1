"""Which place does somebody mean who typed it into a field? (parts.html: lookup)"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dealer_server.rules.catalogue.countries import BUNDLES, COUNTRIES


class Place(NamedTuple):
    code: str
    name: str
    about: str

    @property
    def label(self) -> str:
        """As fields show it."""
        return f"{self.name} · {self.code}"


_USUAL = {code: Place(code, one.name, one.continent) for code, one in COUNTRIES.items()} | {
    code: Place(code, one.name, f"{len(one.locations)} countries") for code, one in BUNDLES.items()
}


def found(text: str, own: Iterable[tuple[str, str]], limit: int) -> Sequence[Place]:
    """Those that a part of the name fits, or whose code begins so, the most alike first. `own`: codes and names of
    places that packages are made for, usual ones among them."""
    every = _USUAL | {code: Place(code, name, "") for code, name in own if code not in _USUAL}
    asked = text.casefold()
    fitting = [one for one in every.values() if asked in one.name.casefold() or one.code.casefold().startswith(asked)]
    fitting.sort(key=lambda one: (one.code.casefold() != asked, not one.name.casefold().startswith(asked), one.name))
    return fitting[:limit]


def code_of(typed: str) -> str:
    """Of a label, of the whole name of a usual place, or what was typed: a code."""
    text = typed.rpartition("· ")[2].strip()
    return next((one.code for one in _USUAL.values() if one.name.casefold() == text.casefold()), text)


def label_of(code: str, name: str = "") -> str:
    """`name`: of a place that is not a usual one; a code without a name stands alone."""
    if name:
        return Place(code, name, "").label
    return _USUAL[code].label if code in _USUAL else code
