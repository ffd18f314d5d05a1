"""Which addresses count as one client?"""

from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

MAPPED_IPV4 = bytes(10) + b"\xff\xff"


def client_network(ip: str) -> str | bytes:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in ip:
        return ip
    try:
        packed = inet_pton(AF_INET6, ip.partition("%")[0])
    except OSError:
        return ip
    return inet_ntop(AF_INET, packed[12:]) if packed.startswith(MAPPED_IPV4) else packed[:8]
