"""How do logs look? Structured, on standard error, JSON in production; they hold ids and codes, never a secret."""

import sys

import structlog


def configure(as_json: bool) -> None:
    """Tracebacks are plain: the pretty ones show local variables, and those may be secrets."""
    if as_json:
        shown = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        shown = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *shown,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
