"""Has this user signed in with this browser before? A token in a cookie of its own tells.

It opens nothing: it only counts the browser's attempts apart from those of others. It ends with the password.
"""

import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from dealer_server.db.sealing import DataKeys
from dealer_server.store.console.user import Account

LIFETIME = timedelta(days=180)


def issue(keys: DataKeys, account: Account, now: datetime) -> str:
    """A token for a browser where this user has signed in: `<userId>.<random>.<epoch seconds>.<MAC>`."""
    content = f"{account.user_id}.{secrets.token_hex(8)}.{int(now.timestamp())}"
    return f"{content}.{_mac(keys, account, content)}"


def find(keys: DataKeys, account: Account, tokens: Sequence[str], now: datetime) -> str:
    """The content of the user's own token among those of a browser; "" where there is none."""
    for token in tokens:
        content, _, mac = token.rpartition(".")
        user_id, _, rest = content.partition(".")
        if user_id != str(account.user_id) or not hmac.compare_digest(
            mac.encode(), _mac(keys, account, content).encode()
        ):
            continue
        issued_at = int(rest.partition(".")[2])  # the MAC fits, so it is a number
        if 0 <= now.timestamp() - issued_at < LIFETIME.total_seconds():
            return content
    return ""


def _mac(keys: DataKeys, account: Account, content: str) -> str:
    return hmac.digest(keys.derive(b"console device"), f"{content}|{account.password}".encode(), "sha256").hex()
