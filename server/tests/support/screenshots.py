"""How does a page look? Small pictures of it, light and dark, wide and on a phone, side by side in one PNG; and how far
two of them are apart.

A picture holds 1 of 10 x 10 pixels of the page, averaged by the browser itself, so that it forgives what nobody sees
(digits, the hinting of a font, a newer Chromium) and keeps what everybody does: where things stand, and their colours.
"""

import base64
import itertools
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Page

FOLDER = Path(__file__).parent / "looks"
SCALE = 10
WIDE, PHONE = (1280, 1000), (390, 1300)  # what of a page is looked at, in pixels
THEMES = ("light", "dark")
VIEWS = [(size, theme) for size in (WIDE, PHONE) for theme in THEMES]
CELL = 2  # pixels of a picture that are looked at as one: a line of text
FAR = 18  # of 255: cells that differ by more are different
SHARE = 0.01  # of a view's cells may be different: digits, dates and ids make 0.0025, a table moved by 24 pixels 0.04
_STEP = 16  # colours are kept in so many levels less, which is finer than FAR and packs well


class Picture(NamedTuple):
    """Rows of RGB, 3 bytes a pixel."""

    width: int
    height: int
    pixels: bytes


_WIDTH = sum(size[0] for size, _ in VIEWS) // SCALE
_HEIGHT = max(size[1] for size, _ in VIEWS) // SCALE
_COMPOSE = """async ([shots, width, height, scale]) => {
  const canvas = new OffscreenCanvas(width, height), pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.imageSmoothingQuality = "high";
  let left = 0;
  for (const shot of shots) {
    const bytes = Uint8Array.from(atob(shot), (letter) => letter.charCodeAt(0));
    const drawn = await createImageBitmap(new Blob([bytes]));
    pen.drawImage(drawn, left, 0, drawn.width / scale, drawn.height / scale);
    left += Math.floor(drawn.width / scale);
  }
  const rgba = pen.getImageData(0, 0, width, height).data, rgb = new Uint8Array(width * height * 3);
  for (let at = 0; at < width * height; at++) rgb.set(rgba.subarray(at * 4, at * 4 + 3), at * 3);
  let text = "";
  for (let at = 0; at < rgb.length; at += 8192) text += String.fromCharCode(...rgb.subarray(at, at + 8192));
  return btoa(text);
}"""


async def picture(blank: Page, shots: Sequence[bytes]) -> Picture:
    """One picture of the screenshots of all VIEWS. `blank` is a page with nothing on it."""
    given = [[base64.b64encode(shot).decode() for shot in shots], _WIDTH, _HEIGHT, SCALE]
    return Picture(_WIDTH, _HEIGHT, base64.b64decode(await blank.evaluate(_COMPOSE, given)))


def apart(one: Picture, other: Picture) -> dict[str, float]:
    """The views in which two pictures differ visibly, and in which share of their cells."""
    assert one[:2] == other[:2], "pictures of one size"
    found, left = {}, 0
    for (width, height), theme in VIEWS:
        share = _share(one, other, left, width // SCALE, height // SCALE)
        left += width // SCALE
        if share > SHARE:
            found[f"{width} {theme}"] = round(share, 4)
    return found


def _share(one: Picture, other: Picture, left: int, width: int, height: int) -> float:
    """Of the cells of a view: how many are different."""
    mine, theirs = (_cells(each, left, width, height) for each in (one, other))
    pairs = list(zip(itertools.chain(*mine), itertools.chain(*theirs), strict=True))
    return sum(max(abs(a - b) for a, b in zip(*pair, strict=True)) > FAR for pair in pairs) / len(pairs)


_Cell = tuple[int, ...]


def _cells(of: Picture, left: int, width: int, height: int) -> list[list[_Cell]]:
    """The mean colour of each cell of a view."""
    stride, pixels = of.width * 3, of.pixels
    cells: list[list[_Cell]] = []
    for y in range(0, height - 1, CELL):
        starts = [(y + down) * stride + left * 3 for down in range(CELL)]
        lines = [pixels[start : start + width * 3] for start in starts]
        means = [[sum(parts) // CELL**2 for parts in _columns(lines, tint)] for tint in range(3)]
        cells.append(list(zip(*means, strict=True)))
    return cells


def _columns(lines: Sequence[bytes], tint: int) -> list[tuple[int, ...]]:
    """The values of one tint, cell by cell."""
    columns = [line[tint + 3 * right :: 3 * CELL] for line in lines for right in range(CELL)]
    return list(zip(*columns, strict=False))


def write(to: Path, drawn: Picture) -> None:
    """As PNG with 8 bits a channel, each line as its difference to the one above."""
    coarse = bytes(min(255, (value + _STEP // 2) // _STEP * _STEP) for value in drawn.pixels)
    stride = drawn.width * 3
    lines, above = bytearray(), bytes(stride)
    for start in range(0, len(coarse), stride):
        line = coarse[start : start + stride]
        lines += b"\x02" + bytes((a - b) & 255 for a, b in zip(line, above, strict=True))
        above = line
    head = struct.pack(">IIBBBBB", drawn.width, drawn.height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(lines), 9)), (b"IEND", b""))
    to.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks))


def read(path: Path) -> Picture:
    """What `write` wrote."""
    raw, at, packed = path.read_bytes(), 8, b""
    width, height = struct.unpack(">II", raw[16:24])
    while at < len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        packed += raw[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    lines, stride, above, pixels = zlib.decompress(packed), width * 3, bytes(width * 3), bytearray()
    for start in range(0, len(lines), stride + 1):
        above = bytes((a + b) & 255 for a, b in zip(lines[start + 1 : start + 1 + stride], above, strict=True))
        pixels += above
    return Picture(width, height, bytes(pixels))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
