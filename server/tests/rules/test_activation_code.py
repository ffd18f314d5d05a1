"""Activation codes: what is one, what it says, and the links and pictures made of it (SGP.22 4.1)."""

import struct
import xml.etree.ElementTree as ElementTree

import pytest

from dealer_server.rules.esim import activation_code, qr

CODE = "LPA:1$rsp.example.com$KQ7-3F"


@pytest.mark.parametrize(
    ("text", "whole", "host", "matching_id"),
    [
        (CODE, CODE, "rsp.example.com", "KQ7-3F"),
        ("1$rsp.example.com$KQ7-3F", CODE, "rsp.example.com", "KQ7-3F"),
        ("lpa:1$rsp.example.com$KQ7-3F", CODE, "rsp.example.com", "KQ7-3F"),
        ("LPA:1$RSP.EXAMPLE.COM$a", "LPA:1$RSP.EXAMPLE.COM$a", "RSP.EXAMPLE.COM", "a"),
        ("LPA:1$a.xn--p1ai$A", "LPA:1$a.xn--p1ai$A", "a.xn--p1ai", "A"),
        (f"{CODE}$", f"{CODE}$", "rsp.example.com", "KQ7-3F"),
        (f"{CODE}$1.3.6.1.4.1", f"{CODE}$1.3.6.1.4.1", "rsp.example.com", "KQ7-3F"),
        (f"{CODE}$1.3.6.1$", f"{CODE}$1.3.6.1$", "rsp.example.com", "KQ7-3F"),
        (f"{CODE}$$1", f"{CODE}$$1", "rsp.example.com", "KQ7-3F"),
        (f"{CODE}$$1$later$FIELDS", f"{CODE}$$1$later$FIELDS", "rsp.example.com", "KQ7-3F"),
    ],
)
def test_a_code_is_parsed_and_written_back(text: str, whole: str, host: str, matching_id: str):
    code = activation_code.parse(text)
    assert (code.text, code.smdp_address, code.matching_id) == (whole, host, matching_id)
    assert activation_code.parse(code.text) == code


@pytest.mark.parametrize(("rest", "required"), [("", False), ("$$", False), ("$1.3$1", True), ("$$1", True)])
def test_a_code_may_need_a_confirmation_code(rest: str, required: bool):
    assert activation_code.parse(CODE + rest).confirmation_code_required is required


@pytest.mark.parametrize(
    ("text", "part"),
    [
        *[(text, "LPA:1[$]host") for text in ("", "LPA:", "LPA:1", "LPA:1$", "LPA:1$rsp.example.com", "LPA:2$a.b$C")],
        *[
            (f"LPA:1${host}$SECRET", "host of an SM-DP")
            for host in (
                *("", "localhost", "rsp", "rsp..com", "-a.com", "a-.com", "a.com.", "a_b.com", "a.com:8443", "a.com/x"),
                *("192.0.2.1", "[2001:db8::1]", "ä.com", "a.com ", "a.com\n", "a" * 64 + ".com"),
            )
        ],
        *[
            (f"LPA:1$rsp.example.com${matching_id}", "MatchingID")
            for matching_id in ("", "A B", "A_B", "A.B", "A\n", "É", "Ａ", "A" * 129)
        ],
        *[(f"{CODE}${oid}", "OID") for oid in ("x", "1.", ".1", "1..2", "1 ")],
        *[(f"{CODE}$${flag}", "flag") for flag in ("0", "2", "11", "yes", " 1")],
        *[(f"{CODE}$$1${later}", "blanks") for later in ("a b", "é", "a\x00", "a\n")],
        (f"LPA:1$rsp.example.com${'A' * 128}${'1.' * 60}1", "characters; at most 255"),
        (f"1$rsp.example.com${'A' * 128}${'1.' * 52}1", "characters; at most 255"),
    ],
)
def test_malformed_codes_are_refused_without_repeating_them(text: str, part: str):
    with pytest.raises(ValueError, match=part) as fault:
        activation_code.parse(text)
    assert "SECRET" not in str(fault.value) and "example" not in str(fault.value)


def test_the_longest_code_is_accepted():
    tail = "$" + "1." * 51 + "1"
    text = f"LPA:1$rsp.example.com${'A' * 128}{tail}"
    assert len(text) == 254 and activation_code.parse(text).text == text


def test_links_hold_the_code_percent_encoded():
    assert activation_code.carddata(CODE) == "LPA%3A1%24rsp.example.com%24KQ7-3F"


def test_the_qr_code_is_a_png_and_an_svg_of_the_same_size():
    png, svg = qr.png(CODE), qr.svg(CODE)
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    drawn = ElementTree.fromstring(svg)
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    modules = 29  # version 3, error correction M
    assert width == height == int(drawn.attrib["width"]) == (modules + 2 * 4) * 6


def test_a_qr_code_is_the_same_each_time():
    assert qr.png(CODE) == qr.png(CODE) and qr.svg(CODE) == qr.svg(CODE)
    assert qr.png(CODE) != qr.png(CODE + "A")
