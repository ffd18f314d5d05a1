"""What are operators told of a supplier that is down?"""

from datetime import UTC, datetime

from dealer_server.rules.notices.notice import OPERATORS, NewNotice


def unreachable(supplier: str, detail: str, since: datetime) -> NewNotice:
    """It has failed its health checks since then. Told once, until it was up again."""
    return _notice(supplier, "UNREACHABLE", detail, since)


def paused(supplier: str, detail: str, now: datetime) -> NewNotice:
    """It refused us as a whole, so nothing new is bought from it until an operator resumes it."""
    return _notice(supplier, "PAUSED", detail, now)


def _notice(supplier: str, reason: str, detail: str, since: datetime) -> NewNotice:
    at = since.astimezone(UTC)
    data = {"supplier": supplier, "reason": reason, "detail": detail[:500], "since": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return NewNotice(OPERATORS, "SUPPLIER_DOWN", f"{reason}:{supplier}:{at.isoformat()}", data)
