"""Is a call well signed, in time, and from an allowed address? (specification 5)"""

import ipaddress
import math
import re
from collections.abc import Sequence

from dealer_server.rules import refusal

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

AUTHENTICATED = "dealer.authenticated"  # key of the ASGI scope: what is called once the client is authenticated
SKEW_MS = 300_000
is_app_key = re.compile(rb"[A-Za-z0-9_]{1,64}").fullmatch
is_timestamp = re.compile(rb"[0-9]{13}").fullmatch
is_seconds = re.compile(rb"[0-9]{10}").fullmatch
is_signature = re.compile(rb"[0-9A-Fa-f]{64}").fullmatch
is_request_id = re.compile(
    rb"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32}"
).fullmatch


def refuse_form(app_key: bytes, request_id: bytes, timestamp: bytes, signature: bytes) -> refusal.Refusal | None:
    """000102 for the first security header that is malformed, None where none is."""
    if not is_app_key(app_key):
        return refusal.HeaderMalformed("RT-AccessCode is malformed; accepted: your AppKey, such as ak_test_...")
    if not is_request_id(request_id):
        return refusal.HeaderMalformed("RT-RequestID is malformed; accepted: a UUID, with or without dashes")
    if is_seconds(timestamp):
        return refusal.HeaderMalformed(
            "RT-Timestamp has 10 digits, so it counts seconds; accepted: milliseconds since 1970, 13 digits"
        )
    if not is_timestamp(timestamp):
        return refusal.HeaderMalformed(
            "RT-Timestamp is malformed; accepted: milliseconds since 1970, 13 digits, such as 1767225600000"
        )
    if not is_signature(signature):
        return refusal.HeaderMalformed("X-Signature is malformed; accepted: 64 hex digits")
    return None


def refuse_timestamp(timestamp_ms: int, now_ms: int) -> refusal.Refusal | None:
    """101001 outside of +-300 s; its data has the server's time."""
    if abs(now_ms - timestamp_ms) <= SKEW_MS:
        return None
    seconds = math.ceil(abs(now_ms - timestamp_ms) / 1000)
    return refusal.TimestampOutsideWindow(
        f"RT-Timestamp is {seconds} s {'behind' if timestamp_ms < now_ms else 'ahead of'} the server;"
        f" accepted: within {SKEW_MS // 1000} s. Set your clock",
        {"serverTime": now_ms},
    )


def refuse_address(address: str, allowed: Sequence[Network]) -> refusal.Refusal | None:
    """101002 for a source address outside the tenant's allowlist; an empty list allows all."""
    if not allowed:
        return None
    try:
        parsed = plain(ipaddress.ip_address(address))
    except ValueError:
        parsed = None
    if parsed is not None and any(parsed in network for network in allowed):
        return None
    return refusal.AddressNotAllowed(f"calls from {address} are not allowed; ask the operator to add it")


def refuse_key_address(address: str, allowed: Sequence[Network]) -> refusal.Refusal | None:
    """101002 for a source address outside the AppKey's own allowlist; an empty list allows what the tenant's does."""
    if refuse_address(address, allowed) is None:
        return None
    return refusal.AddressNotAllowed(
        f"calls of this AppKey from {address} are not allowed; add it to the AppKey's list"
    )


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """An allowlist. Raises ValueError naming the entry that is neither an address nor a network in CIDR form."""
    parsed = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text.strip())
        except ValueError:
            raise ValueError(f"{text!r} is neither an IP address nor a network such as 203.0.113.0/24") from None
        parsed.append(_plain_network(network))
    return tuple(parsed)


def _plain_network(network: Network) -> Network:
    """IPv4-mapped IPv6 addresses as the IPv4 ones that calls come from."""
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < 96:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - 96))


def client_address(peer: str, forwarded_for: Sequence[str], trusted: Sequence[Network]) -> str:
    """Whose call it is: the socket's peer, or behind trusted proxies the right-most hop that is not one of them."""
    address = _address(peer)
    if not trusted or address is None or not _is_trusted(address, trusted):
        return peer if address is None else str(address)
    hops = [hop.strip() for line in forwarded_for for hop in line.split(",")]
    for hop in reversed(hops):
        parsed = _address(hop)
        if parsed is None:  # a trusted proxy passed on what is no address
            break
        address = parsed
        if not _is_trusted(parsed, trusted):
            break
    return str(address)


def came_by_tls(scheme: str, peer: str, forwarded_proto: Sequence[str], trusted: Sequence[Network]) -> bool:
    """Whether the client's connection is encrypted: this one is, or the nearest trusted proxy says so."""
    address = _address(peer)
    if scheme == "https" or address is None or not _is_trusted(address, trusted):
        return scheme == "https"
    protocols = [value.strip().lower() for line in forwarded_proto for value in line.split(",")]
    return protocols[-1:] == ["https"]


def is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    """Whether a socket's peer is one of these proxies."""
    address = _address(peer)
    return address is not None and _is_trusted(address, trusted)


def plain(address: Address) -> Address:
    """An IPv4 address that came as an IPv4-mapped IPv6 one, as itself."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _address(text: str) -> Address | None:
    try:
        return plain(ipaddress.ip_address(text))
    except ValueError:
        return None


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)
