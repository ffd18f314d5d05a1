"""What may a dealer show of itself? Names, addresses, colours that can be read, and pictures that are nothing else."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dealer_server.rules.brand import brand, colour, logo
from dealer_server.rules.esim import qr

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">{}</svg>'
PNG = qr.png("LPA:1$rsp.example.com$X", 200)


def webp(kind: bytes, sides: bytes) -> bytes:
    body = b"WEBP" + kind + struct.pack("<I", len(sides)) + sides
    return b"RIFF" + struct.pack("<I", len(body)) + body


LOSSY = webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", 64, 32) + b"\x00" * 4)
LOSSLESS = webp(b"VP8L", b"\x2f" + struct.pack("<I", 63 | 31 << 14) + b"\x00" * 3)
EXTENDED = webp(b"VP8X", b"\x00" * 4 + (63).to_bytes(3, "little") + (31).to_bytes(3, "little"))


@given(some.from_regex(r"#[0-9a-f]{6}", fullmatch=True))
def test_text_in_and_on_any_colour_can_be_read(chosen: str):
    shades = colour.shades(chosen)
    assert colour.contrast(shades.fill, shades.on_fill) >= colour.ENOUGH
    assert colour.contrast(shades.by_day, "#ffffff") >= colour.ENOUGH
    assert colour.contrast(shades.by_night, "#1b2029") >= colour.ENOUGH


def test_a_colour_that_can_be_read_stays_as_it_is():
    assert colour.shades("#1d5fd1")[:3] == ("#1d5fd1", "#ffffff", "#1d5fd1")
    assert colour.shades("#ffd400").on_fill == "#000000"
    assert round(colour.contrast("#000000", "#ffffff"), 2) == 21


@pytest.mark.parametrize(
    "text", ["red", "#fff", "1d5fd1", "#1d5fd1;}", "#12345g", "rgb(1,2,3)", "#1d5fd1\n#", "#１d5fd1"]
)
def test_what_is_no_colour_is_refused(text: str):
    with pytest.raises(ValueError, match="such as #1d5fd1"):
        brand.parse_colour(text)


def test_fields_are_tidied_and_may_be_empty():
    assert brand.parse_name("  Sunbird \n Travel ") == "Sunbird Travel"
    assert brand.parse_name("سفر") == "سفر"
    assert brand.parse_colour(" #1D5FD1 ") == "#1d5fd1"
    assert brand.parse_phone("+44 20  7946 0000") == "+44 20 7946 0000"
    assert brand.dialled("+44 (20) 7946-0000") == "+442079460000"
    assert brand.parse_url("https://example.com/help?x=1#top") == "https://example.com/help?x=1#top"
    assert brand.parse_email("help+esim@example.co.uk") == "help+esim@example.co.uk"
    parsers = (brand.parse_name, brand.parse_colour, brand.parse_email, brand.parse_phone, brand.parse_url)
    assert [parse("  ") for parse in parsers] == [""] * 5


@pytest.mark.parametrize("name", ["x" * 61, "Sun\u202ebird", "Sun\u2066bird", "Sun\u0000bird", "\ufeffSun"])
def test_names_that_hide_something_are_refused(name: str):
    with pytest.raises(ValueError, match="accepted"):
        brand.parse_name(name)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "javascript:alert(1)",
        "https://",
        "https://localhost",
        "https://u:p@example.com",
        "//x.example",
        'https://example.com/"><script>',
        "https://exa mple.com",
        "https://bücher.example",
        "https://[::1",
        "data:text/html,x",
        "https://example.com/" + "x" * 500,
        "https://example.com\\@evil.example",
    ],
)
def test_support_pages_are_https_addresses(url: str):
    with pytest.raises(ValueError, match="https address"):
        brand.parse_url(url)


@pytest.mark.parametrize("text", ["nobody", "a@b", "a@b c.de", "a@b.de?cc=x@y.de", "a@b.de,c@d.ef", "a" * 65 + "@b.de"])
def test_what_is_no_email_address_is_refused(text: str):
    with pytest.raises(ValueError, match="email address"):
        brand.parse_email(text)


@pytest.mark.parametrize("text", ["12", "call us", "+44;20", "+", "0" * 40])
def test_what_is_no_telephone_number_is_refused(text: str):
    with pytest.raises(ValueError, match="telephone number"):
        brand.parse_phone(text)


# Logos


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, "image/png"),
        (LOSSY, "image/webp"),
        (LOSSLESS, "image/webp"),
        (EXTENDED, "image/webp"),
        (SVG.format("").encode(), "image/svg+xml"),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\n' + SVG.format('<path d="M0 0h9"/>').encode(), "image/svg+xml"),
        (
            SVG.format('<style>.a{fill:url(#g)}</style><use xlink:href="#g"/><title>A &amp; B</title>').encode(),
            "image/svg+xml",
        ),
    ],
)
def test_logos_are_known_by_their_content(content: bytes, media_type: str):
    assert logo.parse(content) == logo.Logo(media_type, content)  # type: ignore[arg-type]


def large_png() -> bytes:
    head = struct.pack(">IIBBBBB", 5000, 5000, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks]
    return PNG[:8] + b"".join(parts)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (PNG + b"\0" * 40_000, "bytes; accepted: at most 32,768"),
        (PNG[:-5], "damaged or not whole"),
        (PNG[:40] + b"\xff" + PNG[41:], "damaged or not whole"),
        (PNG + b"<script>alert(1)</script>", "damaged or not whole"),
        (PNG[:8], "damaged or not whole"),
        (large_png(), "5000 x 5000 pixels"),
        (LOSSY[:-2], "damaged or not whole"),
        (webp(b"VP9 ", b"\0" * 20), "damaged or not whole"),
        (webp(b"VP8X", b"\0" * 4 + b"\xff" * 6), "16777216 x 16777216 pixels"),
        (b"GIF89a" + b"\0" * 40, "no picture of an accepted kind"),
        (b"\xff\xd8\xff\xe0 a photograph", "no picture of an accepted kind"),
        (b"<html><script>alert(1)</script></html>", "begins with <html>"),
        (b"<svg><path/></svg>", "begins with <svg>"),
        (b"<not closed", "no XML"),
    ],
)
def test_what_is_no_small_picture_is_refused(content: bytes, fault: str):
    with pytest.raises(ValueError, match=fault):
        logo.parse(content)


@pytest.mark.parametrize(
    ("inside", "fault"),
    [
        ("<script>alert(1)</script>", "<script>"),
        ("<foreignObject><p/></foreignObject>", "<foreignObject>"),
        ('<h:body xmlns:h="http://www.w3.org/1999/xhtml"/>', "<body>"),
        ('<a href="#x"><path/></a>', "<a>"),
        ('<image href="#x"/>', "<image>"),
        ('<animate attributeName="href"/>', "<animate>"),
        ('<set attributeName="href"/>', "<set>"),
        ('<path onload="alert(1)"/>', "runs a script"),
        ('<path OnClick="alert(1)"/>', "runs a script"),
        ('<use href="https://evil.example/x.svg#a"/>', "links to something outside"),
        ('<use xlink:href="data:image/svg+xml,x"/>', "links to something outside"),
        ('<path style="fill:url(https://evil.example/x)"/>', "loads something"),
        ('<path fill="url( //evil.example/x )"/>', "loads something"),
        ("<style>@import 'https://evil.example';</style>", "loads something"),
        ("<style>@im<!-- -->port 'x';</style>", "loads something"),
        ("<style>a{background:u\\rl(x)}</style>", "loads something"),
        ('<?xml-stylesheet href="https://evil.example"?>', "instruction"),
        ("<g>" * 40 + "</g>" * 40, "within each other"),
        ("<g/>" * 2001, "elements"),
        ("&undeclared;", "no XML"),
    ],
)
def test_an_svg_that_is_more_than_a_drawing_is_refused(inside: str, fault: str):
    with pytest.raises(ValueError, match=fault):
        logo.parse(SVG.format(inside).encode())


def test_an_svg_with_a_doctype_is_refused():
    bomb = b'<!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>' + SVG.format("&b;").encode()
    with pytest.raises(ValueError, match="DOCTYPE"):
        logo.parse(bomb)


def test_an_svg_in_another_encoding_is_read_as_it_says():
    hidden = SVG.format("<script>alert(1)</script>").encode("utf-16")
    with pytest.raises(ValueError, match=r"accepted kind|<script>"):
        logo.parse(hidden)
