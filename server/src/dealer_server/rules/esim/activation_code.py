"""Is this an activation code, and what does it say? (SGP.22 4.1)

LPA:1$<SM-DP+ host>$<MatchingID>[$<SM-DP+ OID>[$1]]
"""

import re
from urllib.parse import quote

import msgspec

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}\Z")  # an all-digit end is an IP address
_MATCHING_ID = re.compile(r"[0-9A-Za-z-]{1,128}\Z")
_LATER_FIELD = re.compile(r"[!-~]*\Z")
_OID = re.compile(r"(?:[0-9]+(?:\.[0-9]+)*)?\Z")
MAX_LENGTH = 255


class ActivationCode(msgspec.Struct, frozen=True):
    """`text` is the whole code, as a QR code holds it."""

    text: str
    smdp_address: str
    matching_id: str
    confirmation_code_required: bool = False


def parse(text: str) -> ActivationCode:
    """Raises ValueError saying which part is wrong, without repeating it: a code is a bearer secret.

    The `LPA:` prefix may be missing and is added. Fields that a later SGP.22 may append are kept.
    """
    body = text[4:] if text[:4].upper() == "LPA:" else text
    if len(body) + 4 > MAX_LENGTH:
        raise ValueError(f"has {len(body) + 4} characters; at most {MAX_LENGTH}")
    version, *fields = body.split("$")
    if version != "1" or len(fields) < 2:
        raise ValueError("must have the form LPA:1$host$matchingId")
    host, matching_id, *rest = fields
    if not _HOST.match(host):
        raise ValueError("must name the host of an SM-DP+ after the first $")
    if not _MATCHING_ID.match(matching_id):
        raise ValueError("must have a MatchingID of letters, digits and - after the second $, at most 128")
    if rest and not _OID.match(rest[0]):
        raise ValueError("must have nothing or an SM-DP+ OID such as 1.3.6.1 after the third $")
    if len(rest) > 1 and rest[1] not in ("", "1"):
        raise ValueError("must have nothing or the confirmation code flag 1 after the fourth $")
    if not all(_LATER_FIELD.match(field) for field in rest[2:]):
        raise ValueError("must have no blanks or letters with accents")
    return ActivationCode("LPA:" + body, host, matching_id, rest[1:2] == ["1"])


def fields(text: str) -> tuple[str, str]:
    """SM-DP+ address and MatchingID of a code that `parse` gave."""
    _, host, matching_id, *_ = text.split("$")
    return host, matching_id


def carddata(text: str) -> str:
    """The code as the phone makers' universal links take it: percent-encoded whole."""
    return quote(text, safe="")
