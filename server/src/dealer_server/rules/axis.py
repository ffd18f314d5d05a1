"""Where does the axis of a chart end?"""


def end(most: int) -> int:
    """A round even number that is no less, so that half of it is a number too."""
    ten = 10 ** (len(str(max(most, 1))) - 1)
    return next(step * ten for step in (2, 4, 6, 8, 10, 20) if step * ten >= most)
