"""Rows as arrays, one per column, for unnest."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """Rows as one array per column, for unnest; also where there are none."""
    return [[row[column] for row in rows] for column in range(width)]
