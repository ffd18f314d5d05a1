"""What a webhook said and was answered, without the codes that it brought: those are looked at one by one, each look an
act (console/operator/profiles.py)."""

import json
from collections.abc import Mapping, Sequence

from dealer_server.store.webhooks.log import Attempt

HIDDEN = "••••"


def hidden(text: str, body: bytes) -> str:
    """A text in which nothing stands that makes one of the body's eSIMs installable."""
    for code in _codes(body):
        text = text.replace(code, HIDDEN)
    return text


def indented(body: bytes, most: int | None = None) -> str:
    """A body to be read by people, its first `most` characters."""
    if not body:
        return ""
    text = hidden(json.dumps(json.loads(body), indent=2, ensure_ascii=False), body)
    return text if most is None or len(text) <= most else f"{text[:most]}\n…"


def answered(attempts: Sequence[Attempt], body: bytes) -> list[Attempt]:
    """Attempts with what receivers said: some send back what they got. Without a body, which not all may see, nothing
    of that is shown."""
    return [one._replace(answer_head=_answer(one.answer_head, body)) for one in attempts]


def _answer(head: str | None, body: bytes) -> str | None:
    return hidden(head, body) if head and body else None


def _codes(body: bytes) -> list[str]:
    """MatchingIDs, and the parts of QR links that nobody can guess."""
    found: set[str] = set()
    for item in json.loads(body).get("items", ()):
        for profile in item.get("profiles", ()):
            found |= {*_parts(profile)}
    return sorted(found - {""}, key=len, reverse=True)


def _parts(profile: Mapping[str, str]) -> Sequence[str]:
    matching_ids = profile.get("activationCode", "").split("$")[2:3]
    return [profile.get("matchingId", ""), *matching_ids, profile.get("qrCodeUrl", "").rpartition("/")[2]]
