"""Which headers sign a webhook? Each attempt is signed anew; after a reset by both secrets (specification 5.6, 6.6)."""

from datetime import datetime
from uuid import uuid4

from dealer_server.db.sealing import MasterKeys, credential_context
from dealer_server.store.webhooks.signer import Signer
from esim_dealer.wire import signing


def headers(
    signer: Signer, master_keys: MasterKeys, body: bytes, now: datetime, standard_id: str | None = None
) -> dict[str, str]:
    """The five headers of every call, and X-Signature-Previous while the secret before a reset is valid. With
    `standard_id`, which names the message, those of standard-webhooks too."""
    timestamp, request_id = int(now.timestamp() * 1000), str(uuid4())
    secret = _secret(signer, master_keys, signer.sealed_secret, signer.secret_version)
    signed = signing.signed_headers(signer.app_key, secret, body, timestamp_ms=timestamp, request_id=request_id)
    secrets = [secret]
    if signer.previous_secret and signer.previous_until and signer.previous_until > now:
        previous = _secret(signer, master_keys, signer.previous_secret, signer.secret_version - 1)
        signed[signing.PREVIOUS_SIGNATURE] = signing.signature(
            previous, str(timestamp).encode(), request_id.encode(), signer.app_key.encode(), body
        )
        secrets.append(previous)
    if standard_id is not None:
        signed |= signing.standard_headers(standard_id, timestamp // 1000, body, secrets)
    return signed


def _secret(signer: Signer, master_keys: MasterKeys, sealed: bytes, version: int) -> bytes:
    return master_keys.open(sealed, credential_context(signer.tenant_id, signer.app_key, version))
