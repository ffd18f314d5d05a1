"""How healthy is what we ask: a supplier, a dealer's endpoint? One rule for all pages.

What does not answer at present is down or failing. What answers is degraded while less than HEALTHY_PERCENT of what it
was asked lately went well, and healthy from there on. A page that shows such a share in red never says healthy.
"""

HEALTHY_PERCENT = 95


def is_degraded(good: int, asked: int) -> bool:
    """Of so many times that it was asked lately, so many went well."""
    return 100 * good < HEALTHY_PERCENT * asked


def share_text(good: int, asked: int) -> str:
    """To a tenth: 85.7 %, 90.0 %. 100 % is all of it, and 0 % none."""
    if not asked:
        return "–"
    nearest = min(max(round(1000 * good / asked), 1 if good else 0), 999 if good < asked else 1000)
    return f"{nearest // 10} %" if nearest in (0, 1000) else f"{nearest / 10:.1f} %"


def supplier_word(up: bool | None, good: int, asked: int) -> str:
    """UP, DEGRADED, DOWN; NOT ASKED where no worker has asked it yet."""
    if up is None:
        return "NOT ASKED"
    return "DOWN" if not up else "DEGRADED" if is_degraded(good, asked) else "UP"
