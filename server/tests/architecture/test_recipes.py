"""Are the recipes complete? Each place that an operation or an event has today is one that its guide names."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from esim_dealer.wire.operations import OPERATIONS, Operation
from support.paths import DOCS, ROOT

# Where places are looked for: contract, client and interface. What an operation does is its own matter.
CODE = ("sdk/src/esim_dealer", "server/src/dealer_server/api")
OTHER_FACE = "server/src/dealer_server/api/rt/"  # answers another family's calls by some of these operations
PAGES = ("docs/specification.md", "docs/reference.md", "sdk/README.md")


def guide(name: str) -> str:
    return (DOCS / "guides" / name).read_text()


def places(words: Iterable[str]) -> set[str]:
    """The files that mention one of these words."""
    word = re.compile("|".join(rf"(?<![\w/]){re.escape(each)}(?![\w/])" for each in words))
    files = [file for folder in CODE for kind in ("*.py", "*.json") for file in (ROOT / folder).rglob(kind)]
    files += [ROOT / page for page in PAGES]
    found = {str(file.relative_to(ROOT)) for file in files if word.search(file.read_text())}
    return {place for place in found if not place.startswith(OTHER_FACE)}


def named(text: str, place: str) -> bool:
    """Whether the guide names this file: by its path, its name, or as `<noun>` of its folder."""
    file = Path(place)
    if file.parent.name == "routes" and f"<noun>{file.suffix}" in text:
        return True
    return file.name in text or f"{file.parent.name}/" in text or ("make docs" in text and file.name == "reference.md")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_every_place_of_an_operation_stands_in_its_recipe(operation: Operation):
    text = guide("add-an-operation.md")
    found = places([operation.path, operation.request.__name__])
    assert {"sdk/src/esim_dealer/wire/operations.py", "docs/specification.md", "docs/reference.md"} <= found
    assert {place for place in found if not named(text, place)} == set()


def test_every_place_of_an_event_stands_in_its_recipe():
    text = guide("add-a-webhook-event.md")
    found = {place for place in places(["REFUND_COMPLETED"]) if "/routes/" not in place}  # descriptions of calls
    assert {"sdk/src/esim_dealer/wire/events.py", "sdk/src/esim_dealer/wire/vocabulary.py"} <= found
    assert {place for place in found if not named(text, place)} == set()
