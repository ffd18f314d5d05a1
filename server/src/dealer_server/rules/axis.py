"""Where does the axis of a chart end?"""

_UNITS, _TENTHS = (2, 4, 6, 8, 10), (10, 12, 16, 20, 24, 30, 40, 50, 60, 80, 100)


def end(most: int) -> int:
    """A round even number that is no less, so that half of it is a number too."""
    if most <= _UNITS[-1]:
        return next(step for step in _UNITS if step >= most)
    tenth = 10 ** (len(str(most)) - 2)
    return next(step * tenth for step in _TENTHS if step * tenth >= most)
