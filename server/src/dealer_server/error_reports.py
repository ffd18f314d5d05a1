"""Which faults does Sentry receive? What is logged as an error: the event's name, its ids and where it was raised.

Never a value: neither local variables nor lines of code nor the texts of exceptions, which may quote what a dealer
sent. The log line with the same ids says the rest.
"""

import atexit
import sys
from collections.abc import Callable, MutableMapping
from importlib.metadata import version
from typing import Any, cast

EXTRA = "pip install 'esim-dealer-server[sentry]'"
SHOWN = (
    "trace_id",
    "path",
    "work",
    "supplier",
    "order_no",
    "tenant_id",
    "delivery_id",
    "order_id",
    "unit_key",
    "claims",
)
"""The fields of a log line that are sent, as tags: ids, codes and names."""
LEVELS = {"error": "error", "exception": "error", "critical": "fatal"}
FLUSH_SECONDS = 2.0
Processor = Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]


class NotInstalled(Exception):
    """The extra that sends faults is missing; the message is one line for the operator."""


def opened(dsn: str, environment: str) -> Processor | None:
    """A processor for structlog that sends errors to this address; None without one. Raises NotInstalled, ValueError
    for an address that is malformed."""
    if not dsn:
        return None
    try:
        import sentry_sdk
        from sentry_sdk.utils import BadDsn
    except ImportError:
        raise NotInstalled(EXTRA) from None
    try:
        sentry_sdk.init(
            dsn=dsn,
            environment=environment,
            release=f"esim-dealer-server@{version('esim-dealer-server')}",
            default_integrations=False,
            auto_enabling_integrations=False,
            include_local_variables=False,
            include_source_context=False,
            send_default_pii=False,
            max_breadcrumbs=0,
            traces_sample_rate=None,
        )
    except BadDsn:
        raise ValueError("an address such as https://key@sentry.example.com/1 is expected") from None
    atexit.register(sentry_sdk.flush, FLUSH_SECONDS)

    def send(_: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        level = LEVELS.get(str(line.get("level", method)))
        if level is not None:
            sentry_sdk.capture_event(cast(Any, event_of(line, level)))
        return line

    return send


def event_of(line: MutableMapping[str, Any], level: str) -> dict[str, Any]:
    """As Sentry takes it. A library's message is sent as its template, without what was filled in."""
    import sentry_sdk
    from sentry_sdk.utils import event_from_exception

    record, raised = line.get("_record"), _raised(line.get("exc_info"))
    event: dict[str, Any] = {}
    if raised is not None:
        event = dict(event_from_exception(raised, client_options=sentry_sdk.get_client().options)[0])
        for one in event["exception"]["values"]:
            one["value"] = ""
    event["level"] = level
    event["logger"] = "esim-dealer" if record is None else record.name
    event["logentry"] = {"message": str(line.get("event", "") if record is None else record.msg)}
    event["tags"] = {name: str(line[name]) for name in SHOWN if name in line}
    return event


def _raised(given: Any) -> Any:
    if isinstance(given, BaseException):
        return type(given), given, given.__traceback__
    found = given if isinstance(given, tuple) else sys.exc_info() if given else None
    return found if found is not None and found[0] is not None else None
