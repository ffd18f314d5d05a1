"""How are times and days written for people? Times are in UTC, which a page or a mail says once."""

from datetime import date, datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def exact(at: datetime) -> str:
    """12 Nov 2026, 14:03:22."""
    return f"{day(at)}, {at:%H:%M:%S}"


def minute(at: datetime) -> str:
    """12 Nov 2026, 14:03."""
    return f"{day(at)}, {at:%H:%M}"


def day(on: date) -> str:
    """12 Nov 2026."""
    return f"{on.day} {_MONTHS[on.month - 1]} {on.year}"
