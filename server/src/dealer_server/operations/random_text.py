"""Random text for secrets and passwords."""

import secrets
import string

_BASE62 = string.ascii_letters + string.digits


def base62(length: int) -> str:
    """Letters and digits, 5.95 bits each."""
    return "".join(secrets.choice(_BASE62) for _ in range(length))
