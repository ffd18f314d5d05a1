"""How are times and days written for people? Times are in UTC, which a page or a mail says once."""

from datetime import date, datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def exact(at: datetime) -> str:
    """12 Nov 2026, 14:03:22."""
    return f"{day(at)}, {at:%H:%M:%S}"


def minute(at: datetime) -> str:
    """12 Nov 2026, 14:03."""
    return f"{day(at)}, {at:%H:%M}"


def short(at: datetime, now: datetime) -> str:
    """12 Nov, 14:03; of another year than `now` with it."""
    return f"{short_day(at, now)}, {at:%H:%M}"


def short_day(at: datetime, now: datetime) -> str:
    """12 Nov; of another year than `now` with it."""
    return f"{at.day} {_MONTHS[at.month - 1]}" if at.year == now.year else day(at)


def listed(at: datetime, now: datetime) -> str:
    """Of a row of a list: 14:03; of another day than `now` 12 Nov, 14:03, of another year with it."""
    return f"{at:%H:%M}" if at.date() == now.date() else short(at, now)


def day(on: date) -> str:
    """12 Nov 2026."""
    return f"{on.day} {_MONTHS[on.month - 1]} {on.year}"


def age(at: datetime, now: datetime) -> str:
    """How long ago it was, in its largest unit: just now, 12 min ago, 5 h ago, 2 days ago."""
    minutes = max(int((now - at).total_seconds() // 60), 0)
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} days ago"
    return f"{minutes // 60} h ago" if minutes >= 60 else f"{minutes} min ago" if minutes else "just now"


def lasted(begin: datetime, end: datetime) -> str:
    """How long something took, in its two largest units: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    seconds = max(int((end - begin).total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60 % 60, seconds // 3_600 % 24, seconds // 86_400
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    first = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)
