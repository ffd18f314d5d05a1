"""What does a QR code look like that a phone installs an eSIM from?"""

import io
import struct
import zlib
from typing import Any

import segno

SCALE, BORDER = 6, 4  # pixels a module; modules of quiet zone
MIN_SIZE, MAX_SIZE = 200, 1200
"""Pixels. The longest activation code has 77 modules with its quiet zone: 2 pixels each at least."""


def svg(activation_code: str, size: int | None = None) -> bytes:
    """`size`: width and height in pixels; None: SCALE pixels a module."""
    if size is None:
        return _saved(activation_code, kind="svg", scale=SCALE)
    drawn = _saved(activation_code, kind="svg", omitsize=True)
    return drawn.replace(b"<svg ", b'<svg width="%d" height="%d" ' % (size, size), 1)


def png(activation_code: str, size: int | None = None) -> bytes:
    """`size`: width and height in pixels; None: SCALE pixels a module. Modules are whole pixels, so that the quiet zone
    takes what is left."""
    if size is None:
        return _saved(activation_code, kind="png", scale=SCALE)
    matrix = _code(activation_code).matrix
    scale = size // (len(matrix) + 2 * BORDER)
    before = (size - len(matrix) * scale) // 2
    after = size - len(matrix) * scale - before
    white = _packed("1" * size)
    rows = [
        _packed("1" * before + "".join([("0" if dark else "1") * scale for dark in modules]) + "1" * after)
        for modules in matrix
    ]
    lines = [white] * before + [row for row in rows for _ in range(scale)] + [white] * after
    head = struct.pack(">IIBBBBB", size, size, 1, 0, 0, 0, 0)  # 1 bit a pixel, grey
    body = zlib.compress(b"".join(lines), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def inline_svg(activation_code: str, title: str) -> str:
    """For an HTML page: as large as its style sheet says."""
    return _code(activation_code).svg_inline(border=BORDER, omitsize=True, svgclass="qr", lineclass=None, title=title)


def _saved(activation_code: str, **options: Any) -> bytes:
    out = io.BytesIO()
    _code(activation_code).save(out, border=BORDER, **options)
    return out.getvalue()


def _packed(bits: str) -> bytes:
    """A line of pixels, with the byte before it that says that it is not filtered."""
    return b"\0" + int(bits.ljust(-len(bits) % 8 + len(bits), "0"), 2).to_bytes((len(bits) + 7) // 8, "big")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _code(activation_code: str) -> segno.QRCode:
    return segno.make(activation_code, error="m", micro=False)
