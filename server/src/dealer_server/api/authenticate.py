"""Whose call is this? The checks of specification 5.4 before any operation, in their order."""

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import uuid4

from dealer_server.api.admission import Admission, LocalAdmission, SharedAdmission
from dealer_server.clock import Clock
from dealer_server.db.sealing import MasterKeys
from dealer_server.operations.cache import Cache, Caller
from dealer_server.rules import refusal
from dealer_server.rules.access import access
from dealer_server.rules.access.rate_limit import Allowance
from esim_dealer.wire import signing
from esim_dealer.wire.calls import MAX_BODY_BYTES

_NAMES = ("content-type", "content-encoding", "content-length", "rt-accesscode", "rt-requestid", "rt-timestamp",
          "x-signature", "rt-signature", "x-forwarded-for")  # fmt: skip
_SLOTS = {name.encode(): slot for slot, name in enumerate(_NAMES)}
(CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH, ACCESS_CODE, REQUEST_ID, TIMESTAMP, SIGNATURE, ALIAS,
 FORWARDED_FOR) = range(9)  # fmt: skip
_SECURITY = {
    ACCESS_CODE: signing.ACCESS_CODE,
    REQUEST_ID: signing.REQUEST_ID,
    TIMESTAMP: signing.TIMESTAMP,
    SIGNATURE: signing.SIGNATURE,
    ALIAS: signing.SIGNATURE_ALIAS,
}
_PLAIN_JSON = b"application/json"
_UNUSED_SECRET = hmac.new(b"a secret that signs nothing", digestmod="sha256")


class Head(NamedTuple):
    """The headers of a call that matter, by slot; of a doubled one, which."""

    values: list[bytes | None]
    doubled: int | None
    forwarded_for: list[str]


def read_head(headers: Sequence[tuple[bytes, bytes]]) -> Head:
    values: list[bytes | None] = [None] * 9
    doubled = None
    forwarded_for: list[str] = []
    for name, value in headers:
        slot = _SLOTS.get(name)
        if slot is None:
            continue
        if slot == FORWARDED_FOR:
            forwarded_for.append(value.decode("latin-1"))
        elif (before := values[slot]) is None:
            values[slot] = value
        elif slot in _SECURITY:
            doubled = slot
        else:  # as if it were one header (RFC 9110 5.2), which of these names two contents and is refused
            values[slot] = before + b", " + value
    return Head(values, doubled, forwarded_for)


def refuse_size(head: Head) -> refusal.Refusal | None:
    """000110 by the announced length; the length as read is checked while reading."""
    length = head.values[CONTENT_LENGTH]
    if length is not None and length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
        return refusal.BodyTooLarge()
    return None


def refuse_content_type(head: Head, body: bytes) -> refusal.Refusal | None:
    """000109: JSON in UTF-8, sent as it is. An empty body has no type to name."""
    content_type, encoding = head.values[CONTENT_TYPE], head.values[CONTENT_ENCODING]
    if encoding is not None and encoding.strip().lower() != b"identity":
        return refusal.ContentTypeRefused("Content-Encoding is not accepted; send the body as it is")
    if content_type == _PLAIN_JSON or (content_type is None and not body):
        return None
    kind, *parameters = (content_type or b"").split(b";")
    values = [parameter.strip().lower().replace(b'"', b"") for parameter in parameters]
    if kind.strip().lower() == _PLAIN_JSON and all(value in (b"", b"charset=utf-8") for value in values):
        return None
    return refusal.ContentTypeRefused()


class Authenticator:
    """Decides whose call it is, and lets each request id and each tenant's calls a second in. `used` receives of each
    well signed call the AppKey and the address."""

    def __init__(
        self,
        cache: Cache,
        master_keys: MasterKeys,
        admission: LocalAdmission | SharedAdmission,
        clock: Clock,
        trusted_proxies: Sequence[access.Network],
        used: Callable[[str, str], None],
    ):
        self._cache = cache
        self._master_keys = master_keys
        self._admission = admission
        self._clock = clock
        self._trusted = trusted_proxies
        self._used = used

    async def authenticate(
        self, head: Head, peer: str, body: bytes, writes: bool = False
    ) -> tuple[Caller, Allowance | None]:
        """The caller of a well signed, fresh call, and its rate limit. `writes`: the call changes something.
        Raises Refusal and DatabaseLost."""
        now = time.monotonic()
        address = self._address(head, peer, now)
        values = head.values
        signature = values[SIGNATURE] if values[SIGNATURE] is not None else values[ALIAS]
        app_key, request_id, timestamp = values[ACCESS_CODE], values[REQUEST_ID], values[TIMESTAMP]
        if app_key is None or request_id is None or timestamp is None or signature is None:
            raise _missing(app_key, request_id, timestamp)
        if head.doubled is not None:
            raise refusal.HeaderMalformed(f"{_SECURITY[head.doubled]} was sent twice")
        if not (
            access.is_timestamp(timestamp)
            and access.is_signature(signature)
            and access.is_request_id(request_id)
            and access.is_app_key(app_key)
        ):
            malformed = access.refuse_form(app_key, request_id, timestamp, signature)
            assert malformed is not None, "one of the four is malformed"
            raise malformed
        key = app_key.decode()
        caller = self._cache.caller(key) or await self._cache.load_caller(key)
        if caller is None:
            self._verify_in_vain(timestamp, request_id, app_key, body)
            self._admission.failed_authentication(address, now)
            raise refusal.AppKeyUnknown
        _refuse_caller(caller, address)
        wall = self._clock().timestamp()
        if why := access.refuse_timestamp(int(timestamp), int(wall * 1000)):
            raise why
        if not self._verified(caller, timestamp + request_id + app_key + body, signature.lower()):
            self._admission.failed_authentication(address, now)
            raise refusal.SignatureMismatch(
                data={"bodyLength": len(body), "bodySha256": hashlib.sha256(body).hexdigest()}
            )
        self._used(key, address)
        return caller, await self._admit(caller, key, request_id, now, wall, writes)

    def known_caller(self, head: Head) -> Caller | None:
        """Who has the AppKey that a call names, where that is in memory; it proves nothing yet."""
        app_key = head.values[ACCESS_CODE]
        return self._cache.caller(app_key.decode("latin-1")) if app_key is not None else None

    async def named_caller(self, head: Head, peer: str) -> Caller:
        """Who has the AppKey that a call names, which proves nothing yet. Raises 101013, 000101, 000102, 101005 and
        DatabaseLost."""
        now = time.monotonic()
        address = self._address(head, peer, now)
        app_key = head.values[ACCESS_CODE]
        if app_key is None:
            raise refusal.HeaderMissing(f"{signing.ACCESS_CODE} is missing: your AppKey")
        if head.doubled == ACCESS_CODE:
            raise refusal.HeaderMalformed(f"{signing.ACCESS_CODE} was sent twice")
        key = app_key.decode() if access.is_app_key(app_key) else ""
        caller = (self._cache.caller(key) or await self._cache.load_caller(key)) if key else None
        if caller is None:
            self._admission.failed_authentication(address, now)
            raise refusal.AppKeyUnknown
        return caller

    async def admit_by_address(
        self, caller: Caller, head: Head, peer: str, writes: bool
    ) -> tuple[Caller, Allowance | None]:
        """Lets a call in that names its AppKey and is not signed: it must come from an address of an allowlist. Raises
        Refusal and DatabaseLost."""
        now = time.monotonic()
        address = self._address(head, peer, now)
        if not caller.from_some:
            raise refusal.AddressNotAllowed("calls that are not signed need an allowlist of addresses; none is set")
        _refuse_caller(caller, address)
        self._used(caller.app_key, address)
        wall = self._clock().timestamp()
        return caller, await self._admit(caller, caller.app_key, uuid4().hex.encode(), now, wall, writes)

    def _address(self, head: Head, peer: str, now: float) -> str:
        """Where a call comes from. Raises 101013 where too many from there were not authentic."""
        address = peer
        if self._trusted:
            address = access.client_address(peer, head.forwarded_for, self._trusted)
        blocked = self._admission.authentication_blocked(address, now)
        if blocked:
            raise refusal.RateExceeded(
                "too many failed authentications from your address", retry_after=math.ceil(blocked)
            )
        return address

    async def _admit(
        self, caller: Caller, app_key: str, request_id: bytes, now: float, wall: float, writes: bool
    ) -> Allowance | None:
        canonical = request_id.decode().replace("-", "").lower()
        admission = self._admission.admit(app_key, canonical, caller.tenant_id, caller.access.qps, now, wall, writes)
        admitted = admission if isinstance(admission, Admission) else await admission
        if not admitted.fresh:
            raise refusal.RequestIdUsed
        allowance = admitted.allowance
        if allowance is not None and not allowance.allowed:
            raise TooManyCalls(allowance)
        return allowance

    def _verified(self, caller: Caller, message: bytes, given: bytes) -> bool:
        if caller.secret is None:
            caller.secret = self._opened(caller.access.sealed_secret, caller.context)
        if _signs(caller.secret, message, given):
            return True
        previous, until = caller.access.previous_secret, caller.access.previous_until
        if previous is None or until is None or until <= self._clock():
            return False
        return _signs(self._opened(previous, caller.previous_context), message, given)

    def _opened(self, sealed: bytes, context: bytes) -> hmac.HMAC:
        return hmac.new(self._master_keys.open(sealed, context), digestmod="sha256")

    def _verify_in_vain(self, timestamp: bytes, request_id: bytes, app_key: bytes, body: bytes) -> None:
        """Takes as long as verifying a known AppKey: the time must not reveal which AppKeys exist."""
        _signs(_UNUSED_SECRET, timestamp + request_id + app_key + body, b"")


def _signs(secret: hmac.HMAC, message: bytes, given: bytes) -> bool:
    """Whether `given` is the message's signature."""
    mac = secret.copy()
    mac.update(message)
    return hmac.compare_digest(mac.hexdigest().encode(), given)


def _refuse_caller(caller: Caller, address: str) -> None:
    """Raises 101006, 101002."""
    if not caller.access.active:
        raise refusal.TenantDisabled
    if caller.from_some and (why := caller.refuse_address(address)):
        raise why


class TooManyCalls(refusal.RateExceeded):
    """101013 with the state of the tenant's bucket."""

    def __init__(self, allowance: Allowance):
        self.allowance = allowance
        super().__init__(
            f"more than {allowance.limit} calls a second",
            retry_after=max(1, math.ceil(allowance.retry_after_seconds)),
        )


def _missing(app_key: bytes | None, request_id: bytes | None, timestamp: bytes | None) -> refusal.HeaderMissing:
    if app_key is None:
        return refusal.HeaderMissing(f"{signing.ACCESS_CODE} is missing: your AppKey")
    if request_id is None:
        return refusal.HeaderMissing(f"{signing.REQUEST_ID} is missing: a new UUID with each call")
    if timestamp is None:
        return refusal.HeaderMissing(f"{signing.TIMESTAMP} is missing: milliseconds since 1970")
    return refusal.HeaderMissing(f"{signing.SIGNATURE} is missing: see specification 5 for how to sign")
