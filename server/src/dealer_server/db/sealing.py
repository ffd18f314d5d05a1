"""How are secrets kept at rest? (docs/decisions/0004-two-kinds-of-sealing.md)

A secret is sealed with a fresh data key (AES-256-GCM), and the data key with a master key. A sealed value begins with
the id of its master key: the newest key seals, all keys open. The context binds a sealed value to its row: a copy in
another row does not open.
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
_WRAPPED = NONCE_BYTES + KEY_BYTES + 16


class CannotOpen(Exception):
    """The value is sealed with a key that is not loaded, or for another row."""


class MasterKeys:
    """The master keys of this deployment: the first seals, all open."""

    def __init__(self, keys: Mapping[str, bytes]):
        if not keys:
            raise ValueError("no sealing key")
        self._keys = {key_id.encode(): AESGCM(key) for key_id, key in keys.items()}
        self.newest = next(iter(self._keys))

    @classmethod
    def parse(cls, text: str) -> "MasterKeys":
        """From `id:base64,id:base64`, newest first. Raises ValueError, whose text holds no key."""
        keys: dict[str, bytes] = {}
        for part in text.split(","):
            key_id, _, encoded = part.strip().partition(":")
            try:
                key = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                key = b""
            if not key_id or len(key_id) > 32 or len(key) != KEY_BYTES:
                raise ValueError(f"sealing keys are id:base64 of {KEY_BYTES} bytes, comma separated, newest first")
            keys[key_id] = key
        return cls(keys)

    def seal(self, secret: bytes, context: bytes) -> bytes:
        key = secrets.token_bytes(KEY_BYTES)
        outer, inner = secrets.token_bytes(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
        return b"".join(
            (
                len(self.newest).to_bytes(1, "big"),
                self.newest,
                outer,
                self._keys[self.newest].encrypt(outer, key, context),
                inner,
                AESGCM(key).encrypt(inner, secret, context),
            )
        )

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """The secret. Raises CannotOpen."""
        at = 1 + sealed[0]
        master = self._keys.get(sealed[1:at])
        if master is None:
            raise CannotOpen(f"sealed by key {sealed[1:at].decode(errors='replace')!r}, which is not loaded")
        wrapped, inner = sealed[at : at + _WRAPPED], sealed[at + _WRAPPED :]
        try:
            key = master.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], context)
            return AESGCM(key).decrypt(inner[:NONCE_BYTES], inner[NONCE_BYTES:], context)
        except InvalidTag:
            raise CannotOpen("not sealed for this row") from None


class DataKeys:
    """The keys for sealing in bulk, opened once per process: a sealed value costs one AES-GCM pass and 30 bytes."""

    def __init__(self, keys: Mapping[int, bytes]):
        self._keys = {number: AESGCM(key) for number, key in keys.items()}
        self._newest = max(keys)
        self._first = keys[min(keys)]
        self._prefix = self._newest.to_bytes(2, "big")

    def derive(self, purpose: bytes) -> bytes:
        """A key for another purpose than sealing, the same in every process of this deployment."""
        return hmac.digest(self._first, purpose, "sha256")

    def seal(self, text: bytes, context: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return self._prefix + nonce + self._keys[self._newest].encrypt(nonce, text, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Raises CannotOpen."""
        key = self._keys.get(int.from_bytes(sealed[:2], "big"))
        if key is None:
            raise CannotOpen("sealed by a data key that is not loaded")
        try:
            return key.decrypt(sealed[2 : 2 + NONCE_BYTES], sealed[2 + NONCE_BYTES :], context)
        except InvalidTag:
            raise CannotOpen("not sealed for this row") from None


def data_key_context(number: int) -> bytes:
    return b"data_key|%d" % number


def credential_context(tenant_id: int, app_key: str, version: int) -> bytes:
    return f"credential|{tenant_id}|{app_key}|{version}".encode()


def profile_context(tenant_id: int, profile_id: int) -> bytes:
    return b"profile|%d|%d" % (tenant_id, profile_id)


def stock_context(iccid: str) -> bytes:
    return f"stock|{iccid}".encode()


def supplier_context(code: str) -> bytes:
    return f"supplier|{code}".encode()


def sms_context(tenant_id: int, sms_id: int) -> bytes:
    return b"sms|%d|%d" % (tenant_id, sms_id)


def delivery_context(tenant_id: int, delivery_id: int) -> bytes:
    return b"delivery|%d|%d" % (tenant_id, delivery_id)
