"""To which URLs and addresses may webhooks go? (specification 4.5 and 6.7)

The URL is checked when it is set, and the address whenever a connection is opened. `is_global` and `is_private` of
Python's ipaddress do not match these rules, so the ranges are listed, after IANA's special-purpose registries. An IPv6
address that embeds an IPv4 address is checked by the latter.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import msgspec


class Policy(msgspec.Struct, frozen=True):
    """`require_https` in production. `allow_loopback` (dev and tests) allows loopback addresses and no others."""

    require_https: bool = False
    allow_loopback: bool = False


PORTS = frozenset((80, 443, 8443))
FIRST_FREE_PORT = 1024
MOST_HOST_CHARACTERS = 253

_URL = re.compile(r"(?i:(https?)://)([^/?#]*)((?:[A-Za-z0-9\-._~:/?@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*)\Z")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]|[A-Za-z0-9\-._]+)(?::([0-9]{0,5}))?\Z")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9\-_]{0,61}[A-Za-z0-9_])?\Z")
_NUMBER = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)\Z")

_LOOPBACK_4 = IPv4Network("127.0.0.0/8")
_LOOPBACK_6 = IPv6Address("::1")
_REFUSED_4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT, and one cloud's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # public, but a cloud's metadata inside its machines
        "169.254.0.0/16",  # link-local, and most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, and one cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, no longer in use
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
_UNICAST_6 = IPv6Network("2000::/3")  # all allocated addresses; without loopback, private and link-local
_REFUSED_6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
]
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")


def fault(url: str, policy: Policy) -> str | None:
    """Which rule a callbackUrl breaks, in a text for the dealer; None if it is accepted. The host is not resolved."""
    if "#" in url:
        return "a fragment (#...) is not accepted"
    parts = _URL.match(url)
    if parts is None:
        return "not an absolute http(s) URL in ASCII, such as https://example.com/webhooks"
    scheme, authority, _ = parts.groups()
    if "@" in authority:
        return "user information before the host (user:password@) is not accepted"
    host_and_port = _AUTHORITY.match(authority)
    if not authority.isascii():
        return "its host has letters outside ASCII; write it in its ASCII form, such as xn--bcher-kva.example"
    if host_and_port is None:
        return "not an absolute http(s) URL: its host is missing or malformed"
    host, port = host_and_port.groups()
    return _host_fault(host, policy) or _port_fault(port) or _scheme_fault(scheme, policy)


def address_allowed(text: str, policy: Policy) -> bool:
    """Whether a connection to this numeric address may be opened."""
    try:
        address = ip_address(text)
    except ValueError:
        return False  # a name would be resolved by the operating system
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if address == _LOOPBACK_6:
            return policy.allow_loopback
        if address.ipv4_mapped is None:
            return _public_6(address)
        address = address.ipv4_mapped
    if address in _LOOPBACK_4:
        return policy.allow_loopback
    return _public_4(address)


def _public_4(address: IPv4Address) -> bool:
    return not any(address in network for network in _REFUSED_4)


def _public_6(address: IPv6Address) -> bool:
    if address in _NAT64:
        return _public_4(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address in _6TO4:
        return _public_4(IPv4Address(int(address) >> 80 & 0xFFFF_FFFF))
    return address in _UNICAST_6 and not any(address in network for network in _REFUSED_6)


def _host_fault(host: str, policy: Policy) -> str | None:
    if host.startswith("["):
        return _address_fault(host[1:-1], policy)
    name = host.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.match(labels[-1]):  # browsers and C libraries read 0x7f.1 and 2130706433 as addresses
        return _address_fault(name, policy)
    if len(name) > MOST_HOST_CHARACTERS or not all(_LABEL.match(label) for label in labels):
        return f"{host!r} is not a host name"
    if labels[-1].lower() == "localhost" and not policy.allow_loopback:
        return f"the host {host} is this machine, not a public address"
    return None


def _address_fault(text: str, policy: Policy) -> str | None:
    try:
        ip_address(text)
    except ValueError:
        return f"{text!r} is not an address in its usual form, such as 192.0.2.1"
    return None if address_allowed(text, policy) else f"the address {text} is not a public one"


def _port_fault(port: str | None) -> str | None:
    if not port or int(port) in PORTS or FIRST_FREE_PORT <= int(port) <= 65_535:
        return None
    return f"port {port} is not accepted; 80, 443, 8443 and those above 1023 are"


def _scheme_fault(scheme: str, policy: Policy) -> str | None:
    return "plain http is not accepted here, use https" if policy.require_https and scheme.lower() == "http" else None
