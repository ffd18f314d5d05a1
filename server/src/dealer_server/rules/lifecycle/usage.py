"""When is a change of usage worth an event of its own? (specification 6.3: only when a mark is crossed)"""

MARKS_PERCENT = (50, 80, 90, 100)


def crossed(before_bytes: int, after_bytes: int, total_bytes: int | None) -> bool:
    """Whether usage passed a mark of its volume; unlimited ones (None) have none."""
    return total_bytes is not None and any(
        before_bytes * 100 < mark * total_bytes <= after_bytes * 100 for mark in MARKS_PERCENT
    )
