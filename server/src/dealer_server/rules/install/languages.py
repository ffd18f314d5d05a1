"""In which language is an install page? In the one asked for, else in the first of the browser's that there is."""

from typing import Literal, get_args

Language = Literal["en", "es", "de", "fr", "zh", "ja"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
MAX_RANGES = 20
DEFAULT: Language = "en"


def choose(accepted: str, asked: str = "") -> Language:
    """`accepted`: the header Accept-Language. `asked`: the parameter lang; what is none of ours does not count."""
    if named := _named(asked):
        return named
    ranges = [_weighted(part, at) for at, part in enumerate(accepted.split(",")[:MAX_RANGES])]
    for weight, _, tag in sorted(ranges):
        if weight < 0 and (language := _named(tag)):
            return language
    return DEFAULT


def _weighted(part: str, at: int) -> tuple[float, int, str]:
    """Sorts first what is wanted most; a weight of 0 is not wanted, nor is one that is no number."""
    tag, _, options = part.partition(";")
    name, _, value = options.strip().partition("=")
    try:
        weight = float(value) if name.strip().lower() == "q" else 1.0
    except ValueError:
        weight = 0.0
    return (-weight if 0 < weight <= 1 else 0.0), at, tag


def _named(tag: str) -> Language | None:
    """de-AT is German."""
    main = tag.strip().lower().partition("-")[0]
    return next((language for language in LANGUAGES if language == main), None)
