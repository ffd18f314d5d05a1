"""Which one-time code is valid now? (RFC 6238: SHA-1, 30 s, 6 digits, as authenticator apps use it)"""

import base64
import hmac
from datetime import datetime
from urllib.parse import quote

SECRET_BYTES = 20
STEP_SECONDS = 30
DRIFT_STEPS = 1  # how far the clock of a phone may differ
DIGITS = 6


def step_of(now: datetime) -> int:
    return int(now.timestamp()) // STEP_SECONDS


def code(secret: bytes, step: int) -> str:
    """RFC 4226 5.3."""
    digest = hmac.digest(secret, step.to_bytes(8, "big"), "sha1")
    at = digest[-1] & 15
    number = int.from_bytes(digest[at : at + 4], "big") & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}d}"


def step_matched(secret: bytes, given: str, now: datetime) -> int | None:
    """The step whose code was given, or None. All codes are compared, so that the time taken reveals nothing."""
    current = step_of(now)
    steps = range(current - DRIFT_STEPS, current + DRIFT_STEPS + 1)
    fitting = [step for step in steps if hmac.compare_digest(code(secret, step).encode(), given.encode())]
    return fitting[-1] if fitting else None


def text(secret: bytes) -> str:
    """The secret as it is typed into an app, in groups of four."""
    letters = base64.b32encode(secret).decode().rstrip("=")
    return " ".join(letters[at : at + 4] for at in range(0, len(letters), 4))


def address(secret: bytes, issuer: str, name: str) -> str:
    """The content of the QR code: otpauth://totp/..."""
    label = f"{quote(issuer)}:{quote(name, safe='@')}"
    return f"otpauth://totp/{label}?secret={text(secret).replace(' ', '')}&issuer={quote(issuer)}"
