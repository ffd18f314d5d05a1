"""Can text be read in a dealer's colour, and on it? (WCAG 2.2, 1.4.3: a contrast of 4.5 at least)"""

import re
from typing import NamedTuple

ENOUGH = 4.5
NEUTRAL = "#1d5fd1"
"""The colour of a page without a brand."""
_FORM = re.compile(r"#[0-9a-f]{6}")
_PAPER, _NIGHT = "#ffffff", "#1b2029"
"""What text stands on: the cards of a page by day and by night."""


class Shades(NamedTuple):
    """A colour as it is used. `fill` is as the dealer gave it, `on_fill` the text on it. `by_day`, `by_night`: the
    nearest shade that can be read on a light and on a dark page."""

    fill: str
    on_fill: str
    by_day: str
    by_night: str


def parse(text: str) -> str:
    """#rrggbb in small letters. Raises ValueError."""
    colour = text.strip().lower()
    if not _FORM.fullmatch(colour):
        raise ValueError("must be a colour such as #1d5fd1")
    return colour


def contrast(first: str, second: str) -> float:
    """1 to 21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def shades(colour: str) -> Shades:
    """Of any colour: black or white can always be read on it, and some shade of it on any page."""
    return Shades(
        fill=colour,
        on_fill="#ffffff" if contrast(colour, "#ffffff") >= ENOUGH else "#000000",
        by_day=_readable(colour, "#000000", _PAPER),
        by_night=_readable(colour, "#ffffff", _NIGHT),
    )


def _readable(colour: str, towards: str, on: str) -> str:
    """The colour, mixed with black or white until it can be read."""
    mixed = (_mixed(colour, towards, percent) for percent in range(0, 101, 4))
    return next(shade for shade in mixed if contrast(shade, on) >= ENOUGH)


def _mixed(colour: str, other: str, percent: int) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{(one * (100 - percent) + two * percent) // 100:02x}" for one, two in pairs)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
