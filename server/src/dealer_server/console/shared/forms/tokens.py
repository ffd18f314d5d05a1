"""How do pages carry the CSRF token? Masked, otherwise on each page, so that compressing pages does not give it away.

Who can make a browser load pages that repeat a text of theirs, and sees how long the compressed answers are, would
find out byte by byte what stands in all of them (BREACH). What stands in each only once cannot be found so.
"""

import secrets

BYTES = 32


def masked(token: str) -> str:
    """A token of 64 hexadecimal digits as 128: a random mask, and the token under it."""
    mask = secrets.token_bytes(BYTES)
    return mask.hex() + _together(mask, bytes.fromhex(token)).hex()


def unmasked(text: str) -> str:
    """The token; "" for what is none."""
    try:
        sent = bytes.fromhex(text) if len(text) == 4 * BYTES else b""
    except ValueError:
        return ""
    return _together(sent[:BYTES], sent[BYTES:]).hex()


def _together(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
