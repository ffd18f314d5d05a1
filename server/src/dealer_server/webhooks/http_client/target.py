"""Where does a receiver listen, and which bytes are sent to it?"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from dealer_server.rules.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy

USER_AGENT = "esim-dealer-webhook/1"
DEFAULT_PORTS = {"http": 80, "https": 443}

_PARTS = re.compile(r"(https?)://(\[[^\]]*\]|[^:/?]*):?([0-9]*)(.*)", re.IGNORECASE)


class Target(msgspec.Struct, frozen=True):
    """A callbackUrl, taken apart."""

    url: str
    tls: bool
    host: str  # without the brackets of an IPv6 address
    port: int
    head: bytes  # what each request begins with, to the colon of Content-Length

    @property
    def server_hostname(self) -> str:
        """The name that the certificate must show; certificates hold names without the dot of the root."""
        return self.host.rstrip(".")

    def request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """A whole POST. Raises ValueError if a header would begin another line or is not Latin-1."""
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if not fields.count("\n") == fields.count("\r") == len(headers):
            raise ValueError("a header holds a line break")
        return b"".join((self.head, b"%d\r\n" % len(body), fields.encode("latin-1"), b"\r\n", body))


@lru_cache(maxsize=10_000)
def target_of(url: str, policy: Policy) -> Target | None:
    """The URL exactly as the dealer wrote it; None if the rules refuse it, which may have changed since it was set."""
    if endpoint.fault(url, policy):
        return None
    parts = _PARTS.match(url)
    assert parts is not None, "the rules accept nothing else"
    scheme, host, port_text, path = parts.groups()
    default = DEFAULT_PORTS[scheme.lower()]
    port = int(port_text or default)
    lines = (
        f"POST {path if path.startswith('/') else '/' + path} HTTP/1.1",
        f"Host: {host.rstrip('.')}" + ("" if port == default else f":{port}"),
        f"User-Agent: {USER_AGENT}",
        "Accept-Encoding: identity",
        "Content-Length: ",
    )
    return Target(url, default == DEFAULT_PORTS["https"], host.strip("[]"), port, "\r\n".join(lines).encode("ascii"))
