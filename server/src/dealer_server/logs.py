"""What do logs look like? Structured, on standard error, JSON in production; with ids and codes, never a secret."""

import logging
import sys

import structlog
from structlog.stdlib import ProcessorFormatter

from dealer_server import error_reports


def configure(as_json: bool, report: error_reports.Processor | None = None) -> None:
    """Formats the service's log lines, and the warnings of libraries, alike. Tracebacks are plain: the pretty ones show
    local variables, which may be secrets. `report` receives every line."""
    if as_json:
        shown = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        shown = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    stamped = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *([report] if report is not None else []),
    ]
    structlog.configure(
        processors=[*stamped, *shown],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    libraries = logging.StreamHandler(sys.stderr)
    named = [*stamped, structlog.stdlib.add_logger_name]
    libraries.setFormatter(
        ProcessorFormatter(foreign_pre_chain=named, processors=[ProcessorFormatter.remove_processors_meta, *shown])
    )
    logging.basicConfig(handlers=[libraries], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    # A pool that cannot connect tries again by itself; operations/health.py logs once that the database is lost.
    logging.getLogger("asyncpg.pool").addFilter(lambda record: not record.exc_info)
