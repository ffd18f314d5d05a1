"""Whom would a new allowlist shut out?"""

from collections.abc import Iterable, Sequence

from dealer_server.rules.access import access

MOST = 100


def parse(texts: Sequence[str]) -> list[str]:
    """Addresses and networks as they are kept. Raises ValueError naming the entry that is neither."""
    if len(texts) > MOST:
        raise ValueError(f"an allowlist has at most {MOST} entries, not {len(texts)}")
    return [str(network) for network in access.networks(texts)]


def shut_out(addresses: Iterable[str], allowed: Sequence[str]) -> list[str]:
    """Those of these addresses from which calls would be refused, each once."""
    networks = access.networks(allowed)
    return [one for one in dict.fromkeys(addresses) if one and access.refuse_address(one, networks)]
