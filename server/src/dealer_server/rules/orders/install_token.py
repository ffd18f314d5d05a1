"""What stands in the address of an install page: /i/{tenantId}-{profileId}-{token of the QR link}."""

import re
from typing import NamedTuple

# A token has 22 characters, those of `secrets.token_urlsafe(16)`. Ids above 2^53 do not exist.
_FORM = re.compile(r"([1-9][0-9]{0,15})-([1-9][0-9]{0,15})-([A-Za-z0-9_-]{1,64})")
_MAX_ID = 2**53


class InstallToken(NamedTuple):
    """Which profile is meant, and the secret that proves it."""

    tenant_id: int
    profile_id: int
    qr_token: str


def written(tenant_id: int, profile_id: int, qr_token: str | None) -> str:
    return f"{tenant_id}-{profile_id}-{qr_token}"


def parse(text: str) -> InstallToken | None:
    """None for what cannot be one."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    token = InstallToken(int(found[1]), int(found[2]), found[3])
    return token if max(token.tenant_id, token.profile_id) < _MAX_ID else None
