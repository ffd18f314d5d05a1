"""Is this file a logo that install pages can show? PNG, WebP or SVG, small, and nothing but a picture."""

import struct
import zlib
from typing import Literal

import msgspec

from dealer_server.rules.brand import svg

MediaType = Literal["image/png", "image/webp", "image/svg+xml"]
MAX_BYTES = 32 * 1024
MAX_SIDE = 1024  # pixels
_PNG = b"\x89PNG\r\n\x1a\n"
_VP8 = {b"VP8 ": 30, b"VP8L": 25, b"VP8X": 30}  # bytes of a file that hold its sides


class Logo(msgspec.Struct, frozen=True):
    media_type: MediaType
    content: bytes


def parse(content: bytes) -> Logo:
    """Raises ValueError saying what is wrong and what is accepted. What the file is called does not matter."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"has {len(content):,} bytes; accepted: at most {MAX_BYTES:,}")
    if content.startswith(_PNG):
        _check_sides(*_png_sides(content))
        return Logo("image/png", content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        _check_sides(*_webp_sides(content))
        return Logo("image/webp", content)
    if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        svg.check(content)
        return Logo("image/svg+xml", content)
    raise ValueError("is no picture of an accepted kind; accepted: PNG, WebP, SVG")


def _check_sides(width: int, height: int) -> None:
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise ValueError(f"is {width} x {height} pixels; accepted: at most {MAX_SIDE} x {MAX_SIDE}")


def _png_sides(content: bytes) -> tuple[int, int]:
    """After a look at every chunk: the file is whole, and nothing follows the picture."""
    kinds, at = [], len(_PNG)
    while at + 12 <= len(content):
        [length] = struct.unpack_from(">I", content, at)
        kind, end = content[at + 4 : at + 8], at + 12 + length
        if end > len(content) or struct.unpack_from(">I", content, end - 4)[0] != zlib.crc32(content[at + 4 : end - 4]):
            break
        kinds.append(kind)
        at = end
    whole = at == len(content) and kinds[:1] == [b"IHDR"] and kinds[-1:] == [b"IEND"] and b"IDAT" in kinds
    if not whole or len(content) < 33:
        raise ValueError("is a PNG file that is damaged or not whole")
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _webp_sides(content: bytes) -> tuple[int, int]:
    kind = content[12:16]
    declared = int.from_bytes(content[4:8], "little") + 8
    if kind not in _VP8 or declared + declared % 2 != len(content) + len(content) % 2 or len(content) < _VP8[kind]:
        raise ValueError("is a WebP file that is damaged or not whole")
    if kind == b"VP8X":
        return int.from_bytes(content[24:27], "little") + 1, int.from_bytes(content[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", content, 26)
    return width & 0x3FFF, height & 0x3FFF
