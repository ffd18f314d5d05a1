"""How is a listening socket bound?"""

import errno
import socket

LAST_PORT = 65_535
BACKLOG = 4096  # connections that wait to be accepted; the kernel caps it (net.core.somaxconn)


def bind_address(address: str) -> socket.socket:
    """A listening socket on HOST:PORT, an IPv6 host in brackets. Raises OSError, as `bind` does."""
    host, _, port = address.rpartition(":")
    return bind(host.strip("[]"), int(port))


def address_text(listening: socket.socket) -> str:
    """HOST:PORT of a listening socket, an IPv6 host in brackets."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; its port is `getsockname()[1]`. Raises OSError, which names the address, when it is taken.

    Listening from here on: of two sockets bound to one port it is the second `listen` that fails.
    """
    if not 0 <= port <= LAST_PORT:  # getaddrinfo would take its last 16 bits
        raise OSError(errno.EINVAL, f"cannot listen on {host} port {port}: a port is 0 to {LAST_PORT}")
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
    listening.setblocking(False)
    return listening
