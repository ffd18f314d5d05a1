"""What do the headers of a webhook say, whichever framework hands them over?"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from esim_dealer.errors import MalformedWebhook
from esim_dealer.wire import signing


@runtime_checkable
class HeaderMapping(Protocol):
    """Headers as the frameworks hand them out: Starlette, Django, Flask, http.server, httpx2, or a plain dict."""

    def items(self) -> Iterable[tuple[str, str]]: ...


Headers = HeaderMapping | Iterable[tuple[str | bytes, str | bytes]]

_TIMESTAMP = re.compile(r"[0-9]{13}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_VISIBLE = re.compile(r"[!-~]{1,128}")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Received:
    """The headers by lower-case name, each with all its values."""

    values: dict[str, list[str]]

    @classmethod
    def of(cls, headers: Headers) -> "Received":
        values: dict[str, list[str]] = {}
        pairs = headers.items() if isinstance(headers, HeaderMapping) else headers
        for name, value in pairs:
            values.setdefault(_text(name).lower(), []).append(_text(value))
        return cls(values)

    def get(self, name: str) -> str | None:
        """Its value, or None. Raises MalformedWebhook where it stands twice."""
        values = self.values.get(name.lower(), [])
        if len(values) > 1:
            raise MalformedWebhook(f"{name} stands there {len(values)} times")
        return values[0] if values else None

    def timestamp(self) -> str:
        """RT-Timestamp, as sent. This and the next three raise MalformedWebhook, which names the header."""
        return self._form(signing.TIMESTAMP, _TIMESTAMP, "13 digits")

    def request_id(self) -> str:
        return self._form(signing.REQUEST_ID, _VISIBLE, "visible ASCII")

    def access_code(self) -> str:
        return self._form(signing.ACCESS_CODE, _VISIBLE, "visible ASCII")

    def signatures(self) -> dict[str, str]:
        """What the sender offers as signature, by header: the canonical one, or its alias, first."""
        name = signing.SIGNATURE
        if self.get(name) is None and self.get(signing.SIGNATURE_ALIAS) is not None:
            name = signing.SIGNATURE_ALIAS
        names = [name] + [signing.PREVIOUS_SIGNATURE] * (self.get(signing.PREVIOUS_SIGNATURE) is not None)
        return {name: self._form(name, _SIGNATURE, "64 hexadecimal digits") for name in names}

    def number(self, name: str) -> int | None:
        """An additive number. What is no number is as good as absent: it must not cost an event."""
        value = self.get(name)
        return int(value) if value is not None and _NUMBER.fullmatch(value) else None

    def _form(self, name: str, form: re.Pattern[str], words: str) -> str:
        value = self.get(name)
        if value is None:
            raise MalformedWebhook(f"{name} is missing")
        if not form.fullmatch(value):
            raise MalformedWebhook(f"{name} is not {words}")
        return value


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
