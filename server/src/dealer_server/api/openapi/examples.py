"""What do calls and answers look like? The JSON files beside the modules of api/routes, and the published test vector.

The files have the addresses of BASE_URL; the document shows the service's own.
"""

from importlib import resources
from typing import Any

import msgspec

from dealer_server.api import routes
from dealer_server.api.routes import MODULES, Route
from esim_dealer.wire import signing

BASE_URL = "https://api.example.com"
REQUEST_ID = "4ce9d9cd-ac9e-4e17-b3a2-c66c358c1ce2"
APP_KEY = "ak_test_0001"
APP_SECRET = "sk_test_0001"  # noqa: S105  (of the published test vector)
TRACE_ID = "a1b2c3d4e5f6-2a"
TIMESTAMP_MS = 1_767_225_600_000
SIGNATURE = signing.signature(
    APP_SECRET.encode(), str(TIMESTAMP_MS).encode(), REQUEST_ID.encode(), APP_KEY.encode(), b"{}"
)


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request that an operation takes, and the `data` that it may answer, by the name of the case."""

    request: dict[str, Any]
    answers: dict[str, dict[str, Any]]


def load(base_url: str = BASE_URL) -> dict[str, Example]:
    """The examples by path."""
    found: dict[str, Example] = {}
    for module in MODULES:
        file = resources.files(routes) / f"{module.__name__.rpartition('.')[2]}.json"
        text = file.read_text(encoding="utf-8").replace(BASE_URL, base_url)
        found |= msgspec.json.decode(text, type=dict[str, Example])
    return found


def fault(route: Route[Any, Any], example: Example | None) -> str | None:
    """What is wrong with the example of a route, if anything."""
    if example is None or not example.answers:
        return "has no example"
    try:
        _decode(example.request, route.operation.request)
        for answer in example.answers.values():
            _decode(answer, route.operation.answer)
    except msgspec.ValidationError as error:
        return f"has an example that does not fit: {error}"
    return None


def _decode(value: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """Raises msgspec.ValidationError."""
    msgspec.json.decode(msgspec.json.encode(value), type=struct)
