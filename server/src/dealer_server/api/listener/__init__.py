"""How do bytes from the network become requests? uvicorn with deadlines, limits and a strict reading of HTTP/1.1.

uvicorn leaves to a front proxy what a server on the open net needs: it waits for ever for a slow client, queues any
number of pipelined requests, and passes on framing that proxies are known to read differently. Here such a client is
answered 400, or closed. Nothing here knows the API; the answers made here have the API's envelope.
"""

from dealer_server.api.listener.limits import Counts, Deadlines, Limits
from dealer_server.api.listener.protocol import Terms
from dealer_server.api.listener.reply import REPLY
from dealer_server.api.listener.server import Listener, server, tls_context

__all__ = [
    "REPLY",
    "Counts",
    "Deadlines",
    "Limits",
    "Listener",
    "Terms",
    "server",
    "tls_context",
]
