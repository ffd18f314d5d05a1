"""Turns rows into arrays, one per column, and arrays into rows of a statement."""

from collections.abc import Sequence

from asyncpg.protocol import protocol

# asyncpg asks an abstract class about each element of an array, whether it is an array too: a third of what sending one
# takes. What is sent as an array is one of these (docs/decisions/0073-elements-of-arrays.md).
ARRAY_TYPES = (list, tuple, set, frozenset)
protocol.__dict__["IterableABC"] = ARRAY_TYPES


def columns(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """One array per column, also where there are no rows."""
    return [[row[column] for row in rows] for column in range(width)]


def batch(name: str, first: int = 1, /, **types: str) -> str:
    """SQL: the arrays $first, $first + 1, … as rows, one column for each of `types`.

    The LIMIT leaves none out. It lets the planner expect one row, so that a join begins with the batch and finds the
    other rows by key, however few of them the statistics expect.
    """
    arrays = ", ".join(f"${at}::{type_name}[]" for at, type_name in enumerate(types.values(), first))
    return f"(SELECT * FROM unnest({arrays}) AS given({', '.join(types)}) LIMIT cardinality(${first})) AS {name}"
