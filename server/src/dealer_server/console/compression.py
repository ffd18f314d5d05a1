"""Pages are sent compressed, but those that show a secret.

The length of a compressed page tells whether a text that somebody else put into its address stands elsewhere in it
(BREACH). What all pages have in common and must stay secret is another one on each page (shared/forms/tokens.py); pages
with keys, passwords or activation codes are not compressed.
"""

import gzip
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALLEST = 1_000
LEVEL = 5
_has_secrets = re.compile(
    r"/console/(sign-in|account|users|credentials|profiles/|deliveries/|webhooks/(?!endpoints)|mails/|api-log/"
    r"|dealers/[^/]+/(credentials|api-log)|orders/)"
).match


class Compression:
    """Compresses HTML for browsers that take it."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        takes = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_html(message):
                start = message
                return
            if start is not None:
                body, whole = message.get("body", b""), not message.get("more_body", False)
                headers = MutableHeaders(scope=start)
                headers.add_vary_header("Accept-Encoding")
                if takes and whole and len(body) >= SMALLEST and not _has_secrets(scope["path"]):
                    body = gzip.compress(body, LEVEL, mtime=0)
                    headers["Content-Encoding"], headers["Content-Length"] = "gzip", str(len(body))
                    message = {**message, "body": body}
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_compressed)


def _is_html(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/html")
