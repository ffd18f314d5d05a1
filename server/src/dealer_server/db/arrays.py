"""Turns rows into arrays, one per column: the arguments of unnest."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """One array per column, also where there are no rows."""
    return [[row[column] for row in rows] for column in range(width)]
