"""Is this SVG nothing but a drawing? One that could run a script or load anything is refused, not repaired.

A page shows a logo as <img>, where browsers neither run scripts nor load anything; this check is the second lock.
"""

import re
from collections.abc import Mapping
from xml.parsers import expat  # with no entities declared, expat expands none but the five of XML itself

_SVG = "http://www.w3.org/2000/svg"
_LINK = ("href", "http://www.w3.org/1999/xlink href")
_SHAPES = "path rect circle ellipse line polyline polygon text tspan"
_STRUCTURE = "svg g defs symbol use title desc metadata style"
_PAINT = "linearGradient radialGradient stop clipPath mask pattern"
_ELEMENTS = frozenset(f"{_SHAPES} {_STRUCTURE} {_PAINT}".split())
# In style sheets and attributes: what loads something, or hides that it does.
_LOADS = re.compile(r"@import|expression\s*\(|javascript:|\\|url\(\s*[\"']?\s*(?!#)[^)\s]", re.IGNORECASE)
MAX_DEPTH, MAX_ELEMENTS = 32, 2000


def check(content: bytes) -> None:
    """Raises ValueError naming what is not accepted."""
    parser = expat.ParserCreate(namespace_separator=" ")
    reader = _Reader()
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.ProcessingInstructionHandler = reader.instruction
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"is an SVG file that is no XML: {expat.errors.messages[error.code]}") from None


class _Reader:
    """Sees the parts of a file one by one. Its methods raise ValueError."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._count = 0
        self._style = ""

    def doctype(self, *_: object) -> None:
        raise ValueError("is an SVG file with a DOCTYPE; accepted: none, export it as plain SVG")

    def instruction(self, target: str, _: str) -> None:
        raise ValueError(f"is an SVG file with the instruction <?{target[:40]}?>; accepted: none")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        namespace, _, element = name.rpartition(" ")
        self._count += 1
        if not self._open and (namespace, element) != (_SVG, "svg"):
            raise ValueError(f"begins with <{element[:40]}>; accepted: <svg> of {_SVG}")
        self._open.append(element)
        if len(self._open) > MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise ValueError(f"is an SVG file of more than {MAX_ELEMENTS} elements, or {MAX_DEPTH} within each other")
        if namespace != _SVG:
            # What drawing programs note for themselves; browsers draw nothing of it.
            if namespace in ("", "http://www.w3.org/1999/xhtml"):
                raise ValueError(f"is an SVG file with <{element[:40]}>; accepted: shapes, text and paint")
        elif element not in _ELEMENTS:
            raise ValueError(f"is an SVG file with <{element[:40]}>; accepted: shapes, text and paint")
        for attribute, value in attributes.items():
            _check_attribute(attribute, value)

    def end(self, _: str) -> None:
        if self._open.pop() == "style":
            _check_style(self._style)
            self._style = ""

    def text(self, text: str) -> None:
        if self._open[-1:] == ["style"]:
            self._style += text


def _check_attribute(name: str, value: str) -> None:
    if name.rpartition(" ")[2].lower().startswith("on"):
        raise ValueError(f"is an SVG file with the attribute {name[:40]}, which runs a script; accepted: none such")
    if name in _LINK and not value.strip().startswith("#"):
        raise ValueError("is an SVG file that links to something outside of it; accepted: links that begin with #")
    _check_style(value)


def _check_style(text: str) -> None:
    if _LOADS.search(text):
        raise ValueError("is an SVG file that loads something; accepted: url(#...) for paint within the file")
