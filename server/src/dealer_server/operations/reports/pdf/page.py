"""A page of A4 with text in columns, on top of reportlab: the same content gives the same bytes."""

import io
from functools import cache
from importlib import resources
from pathlib import Path

from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from dealer_server.operations.reports.pdf.lettering import Run, runs

WIDTH, HEIGHT = A4
MARGIN = 48.0
RIGHT = WIDTH - MARGIN
REGULAR, BOLD = "DejaVuSans", "DejaVuSans-Bold"
INK, QUIET, LINE = 0.1, 0.42, 0.82
_FOOT = 62.0


@cache
def _fonts() -> dict[str, frozenset[int]]:
    """Registers our own fonts; the letters that each has."""
    found = {}
    for name in (REGULAR, BOLD):
        with resources.as_file(
            resources.files("dealer_server.operations.reports.pdf") / "fonts" / f"{name}.ttf"
        ) as file:
            font = TTFont(name, str(Path(file)))
        pdfmetrics.registerFont(font)
        found[name] = frozenset(font.face.charToGlyph)
    return found


@cache
def _registered(name: str) -> str:
    """A font that readers have."""
    pdfmetrics.registerFont(UnicodeCIDFont(name))
    return name


class Paper:
    """Pages that are written from top to bottom. `y`: where the next line stands, in points from below. `foot`: what
    stands at the end of each page, beside its number."""

    def __init__(self, title: str, author: str, foot: str):
        self._out = io.BytesIO()
        self._canvas = Canvas(self._out, pagesize=A4, invariant=1, pageCompression=1, lang="en")
        self._canvas.setTitle(title)
        self._canvas.setAuthor(author)
        self._canvas.setCreator("")
        self._foot = foot
        self._pages: list[dict[str, object]] = []
        self.y = HEIGHT - MARGIN

    def room_for(self, height: float) -> bool:
        """Whether so much is left of this page; else the next one begins."""
        if self.y - height >= _FOOT:
            return True
        self._end_page()
        self.y = HEIGHT - MARGIN
        return False

    def text(self, x: float, text: str, size: float = 9, *, bold: bool = False, grey: float = INK,
             most: float | None = None) -> None:  # fmt: skip
        """`most`: how wide it may be; a longer text is cut."""
        at = x
        for run, font in self._fitting(text, BOLD if bold else REGULAR, size, most):
            self._canvas.setFillGray(grey)
            self._canvas.setFont(font, size)
            self._canvas.drawString(at, self.y, run.text)
            at += pdfmetrics.stringWidth(run.text, font, size)

    def number(self, right: float, text: str, size: float = 9, *, bold: bool = False, grey: float = INK) -> None:
        """A text that ends there."""
        font = BOLD if bold else REGULAR
        self.text(right - _width(self._runs(text, font), font, size), text, size, bold=bold, grey=grey)

    def line(self, below: float = 4, grey: float = LINE) -> None:
        self._canvas.setStrokeGray(grey)
        self._canvas.setLineWidth(0.6)
        self._canvas.line(MARGIN, self.y - below, RIGHT, self.y - below)

    def finished(self) -> bytes:
        """The whole file."""
        self._end_page()
        for number, page in enumerate(self._pages, 1):
            self._canvas.__dict__.update(page)
            self.y = _FOOT - 26
            self.line(-12)
            self.text(MARGIN, self._foot, 7.5, grey=QUIET, most=RIGHT - MARGIN - 80)
            self.number(RIGHT, f"Page {number} of {len(self._pages)}", 7.5, grey=QUIET)
            self._canvas.showPage()
        self._canvas.save()
        return self._out.getvalue()

    def _end_page(self) -> None:
        """The number of pages is known at the end: the page waits for it."""
        self._pages.append(dict(self._canvas.__dict__))
        self._canvas._startPage()  # pyright: ignore[reportAttributeAccessIssue]

    def _runs(self, text: str, font: str) -> list[Run]:
        letters = _fonts()[font]
        return runs(text, lambda letter: ord(letter) in letters)

    def _fitting(self, text: str, font: str, size: float, most: float | None) -> list[tuple[Run, str]]:
        found = self._runs(text, font)
        if most is not None and _width(found, font, size) > most:
            while text and _width(found, font, size) > most:
                text = text[:-1]
                found = self._runs(f"{text.rstrip()}…", font)
        return [(run, _registered(run.font) if run.font else font) for run in found]


def _width(parts: list[Run], font: str, size: float) -> float:
    return sum(pdfmetrics.stringWidth(run.text, _registered(run.font) if run.font else font, size) for run in parts)
