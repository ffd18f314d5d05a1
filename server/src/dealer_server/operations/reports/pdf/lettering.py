"""How is a name written with fonts that have no shaping? Each text becomes runs of one font.

The fonts of fonts/ hold Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew and Arabic letters. Chinese, Japanese and
Korean names use fonts that PDF readers have, which are not part of the file. What none of them has is shown as □.
Arabic letters are joined and words from right to left are turned, but not mixed with others as the Unicode
bidirectional algorithm does, and vowel marks are left out.
"""

import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple

LONGEST = 200
_SHAPES = ("isolated", "final", "initial", "medial")
_LAM = "\u0644"
_MISSING = "\u25a1"


class Run(NamedTuple):
    """Letters in the order in which they are drawn. `font`: "" for our own, else one that readers have."""

    text: str
    font: str


def runs(text: str, has: Callable[[str], bool]) -> list[Run]:
    """`has`: whether our own font has a letter."""
    clean = unicodedata.normalize("NFC", text[:LONGEST])
    plain = "".join(" " if letter.isspace() else letter for letter in clean if _is_drawn(letter))
    drawn = _turned(_joined(plain))
    asian = _asian_font(plain)
    fonts = [(letter, "") if has(letter) else _elsewhere(letter, asian) for letter in drawn]
    return [Run("".join(letter for letter, _ in part), font) for font, part in groupby(fonts, lambda letter: letter[1])]


def _is_drawn(letter: str) -> bool:
    return letter.isspace() or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Mn", "Me", "Co")


def _elsewhere(letter: str, asian: str) -> tuple[str, str]:
    """A letter that our own font lacks. What readers' fonts have are the old characters of the first plane."""
    wide = unicodedata.east_asian_width(letter) in ("W", "F") and ord(letter) < 0x10000
    return (letter, asian) if wide and unicodedata.category(letter) != "So" else (_MISSING, "")


def _asian_font(text: str) -> str:
    names = {unicodedata.name(letter, "").partition(" ")[0] for letter in text}
    if names & {"HIRAGANA", "KATAKANA"}:
        return "HeiseiKakuGo-W5"
    return "HYGothic-Medium" if "HANGUL" in names else "STSong-Light"


@cache
def _forms() -> dict[str, dict[str, str]]:
    """The shapes of Arabic letters, and of lam with an alef, by what they are made of."""
    found: dict[str, dict[str, str]] = {}
    for code in (*range(0xFB50, 0xFBB2), *range(0xFE80, 0xFEFD)):
        tag, *parts = unicodedata.decomposition(chr(code)).split()
        found.setdefault("".join(chr(int(part, 16)) for part in parts), {})[tag.strip("<>")] = chr(code)
    return found


def _joined(text: str) -> str:
    """Arabic letters in the shapes that they take beside each other."""
    letters = list(_ligatures(text))
    out = []
    for at, letter in enumerate(letters):
        shapes = _forms().get(letter)
        if shapes is None:
            out.append(letter)
            continue
        after = at > 0 and "initial" in _forms().get(letters[at - 1], {}) and "final" in shapes
        before = at + 1 < len(letters) and "final" in _forms().get(letters[at + 1], {}) and "initial" in shapes
        out.append(shapes.get(_SHAPES[2 * before + after], letter))
    return "".join(out)


def _ligatures(text: str) -> Iterator[str]:
    """The letters; lam and the alef behind it are one."""
    skip = False
    for at, letter in enumerate(text):
        if skip:
            skip = False
        elif letter == _LAM and text[at : at + 2] in _forms():
            skip = True
            yield text[at : at + 2]
        else:
            yield letter


def _is_right_to_left(letter: str) -> bool:
    return unicodedata.bidirectional(letter) in ("R", "AL")


def _turned(text: str) -> str:
    """Words from right to left, and what stands between two of them, in the order in which they are drawn."""
    words = text.split(" ")
    out = list[str]()
    for turned, part in groupby(words, lambda word: any(map(_is_right_to_left, word))):
        out += [_word_turned(word) for word in reversed(list(part))] if turned else part
    return " ".join(out)


def _word_turned(word: str) -> str:
    """Numbers and Latin letters inside of it stay as they are."""
    parts = [
        (keep, "".join(part))
        for keep, part in groupby(word, lambda letter: unicodedata.bidirectional(letter) in ("L", "EN", "AN"))
    ]
    return "".join(part if keep else part[::-1] for keep, part in reversed(parts))
