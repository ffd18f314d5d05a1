"""Webhook bodies and the answers to them, without the activation codes in them: a code is shown on its profile's page
alone, where each look is recorded in the audit log (console/operator/profiles.py)."""

import json
from collections.abc import Mapping, Sequence

from dealer_server.console.shared import rendering
from dealer_server.store.webhooks.log import Attempt

HIDDEN = "••••"


def hidden(text: str, body: bytes) -> str:
    """A text without anything that makes one of the body's eSIMs installable."""
    for code in _codes(body):
        text = text.replace(code, HIDDEN)
    return text


def indented(body: bytes, most: int | None = None) -> str:
    """A body, indented, its first `most` characters."""
    text = hidden(rendering.indented(body), body) if body else ""
    return text if most is None or len(text) <= most else f"{text[:most]}\n…"


def without_codes(attempts: Sequence[Attempt], body: bytes) -> list[Attempt]:
    """Some receivers send back what they got. Without a body, which not every role may see, no answer is shown."""
    return [
        attempt._replace(
            answer_head=_answer(attempt.answer_head, body), answer_fields=_answer(attempt.answer_fields, body)
        )
        for attempt in attempts
    ]


def _answer(head: str | None, body: bytes) -> str | None:
    return hidden(head, body) if head and body else None


def _codes(body: bytes) -> list[str]:
    """MatchingIDs, and the parts of QR links and install pages that nobody can guess: both have the same."""
    codes: set[str] = set()
    for item in json.loads(body).get("items", ()):
        for profile in item.get("profiles", ()):
            codes |= {*_parts(profile)}
    return sorted(codes - {""}, key=len, reverse=True)


def _parts(profile: Mapping[str, str]) -> Sequence[str]:
    matching_ids = profile.get("activationCode", "").split("$")[2:3]
    return [profile.get("matchingId", ""), *matching_ids, profile.get("qrCodeUrl", "").rpartition("/")[2]]
