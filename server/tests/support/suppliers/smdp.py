"""An SM-DP+ for tests: ES2+ over mutual TLS on loopback, with a book of what it holds, and faults on demand.

async with running_smdp(folder, profiles={"TYPE": iccids}, fault=[...]) as smdp:
    supplier = Es2Plus("es2:test", smdp.settings)
"""

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal, NamedTuple

import aiohttp
import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dealer_server.rules.esim import iccid as iccid_rules
from dealer_server.suppliers.es2plus.client import PATH, Es2PlusSettings

REQUESTER = "ESIM-DEALER-TEST"
HOST = "rsp.smdp.test"
State = Literal["AVAILABLE", "ALLOCATED", "CONFIRMED", "RELEASED", "DOWNLOADED", "INSTALLED", "UNAVAILABLE"]


def iccids(count: int, first: int = 0) -> list[str]:
    """So many ICCIDs of 19 digits that no real card has."""
    heads = (f"89000{number:013d}" for number in range(first, first + count))
    return [head + iccid_rules.luhn_digit(head) for head in heads]


# Certificates


class Identity(NamedTuple):
    """A certificate and its key, as PEM text."""

    cert: str
    key: str


class Authority:
    """Signs certificates that are good for a day."""

    def __init__(self, name: str):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.pem = _pem(self._cert)

    def issue(self, name: str, *, expired: bool = False, curve: ec.EllipticCurve | None = None) -> Identity:
        """For a server on 127.0.0.1, or for a client."""
        key = ec.generate_private_key(curve or ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        return Identity(_pem(self._signed(subject, key, here, expired=expired)), _key_pem(key))

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType, expired: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=-1 if expired else 1))
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )


def _pem(cert: x509.Certificate) -> str:
    return cert.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def tls(folder: Path, purpose: Literal["server", "client"], identity: Identity | None, trusted: str) -> ssl.SSLContext:
    """A context that shows `identity` and demands a certificate signed by `trusted` of the other side."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if purpose == "server" else ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=trusted)
    if identity is not None:
        file = folder / f"{uuid.uuid4()}.pem"
        file.write_text(identity.cert + identity.key)
        context.load_cert_chain(file)
    return context


# Faults


class Fault(NamedTuple):
    """What goes wrong with a call, and whether the function is executed first.

    how: RESET and HANG (no answer), HTTP 500, HTML, HALF (broken off), EXPIRED, or a status code such as 8.2.5/3.7.
    TWICE: it is executed twice, and the second answer is given.
    """

    how: str
    executed: bool = False


TWICE = Fault("TWICE", executed=True)
Faults = Callable[[str, Mapping[str, Any]], Fault | None]
"""(function, body) of a call to what goes wrong with it."""


def plan(faults: Iterable[Fault | None]) -> Faults:
    """One after the other, then none."""
    left: Iterator[Fault | None] = iter(faults)
    return lambda function, body: next(left, None)


class Refused(Exception):
    """A function fails with this status code."""


# The book


@dataclass
class Profile:
    """One profile. `orders` and `confirmations` count what was carried out for it."""

    profile_type: str
    state: State = "AVAILABLE"
    matching_id: str | None = None
    eid: str | None = None
    orders: int = 0
    confirmations: int = 0


class Call(NamedTuple):
    function: str
    body: dict[str, Any]
    headers: Mapping[str, str]


@dataclass
class Smdp:
    """retries: an identical confirmOrder succeeds again. profile_status: it has getProfileStatus. pads: the ICCIDs it
    answers have 20 places. answers_iccid: what downloadOrder says it reserved. serve_instead: answers everything."""

    profiles: dict[str, Profile] = field(repr=False)
    fault: Faults
    notifier: ssl.SSLContext = field(repr=False)
    authority: Authority = field(repr=False)
    agreed: Mapping[str, Any] = field(repr=False)
    retries: bool = False
    profile_status: bool = False
    pads: bool = False
    calls: list[Call] = field(default_factory=list, repr=False)
    answers_iccid: str | None = None
    serve_instead: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    base_url: str = ""

    @property
    def settings(self) -> Es2PlusSettings:
        """How it is reached."""
        return Es2PlusSettings(
            base_url=self.base_url,
            requester_id=REQUESTER,
            smdp_address=HOST,
            vendor_profile_status=self.profile_status,
            **self.agreed,
        )

    @property
    def book(self) -> dict[str, str]:
        """MatchingIDs of what can be downloaded, by ICCID: what was bought here."""
        return {iccid: one.matching_id or "" for iccid, one in self.profiles.items() if one.state == "RELEASED"}

    def load(self, profile_type: str, iccids: Iterable[str]) -> None:
        self.profiles |= {iccid: Profile(profile_type) for iccid in iccids}

    def functions(self) -> list[str]:
        return [call.function for call in self.calls]

    def download(self, activation_code: str, eid: str = "8" * 32) -> str:
        """What a phone does with an activation code: the ICCID. Raises KeyError where the code is none of here."""
        prefix, host, matching_id = activation_code.split("$")
        by_matching_id = {one: iccid for iccid, one in self.book.items()}
        iccid = by_matching_id[matching_id if (prefix, host) == ("LPA:1", HOST) else "?"]
        self.profiles[iccid].state, self.profiles[iccid].eid = "DOWNLOADED", eid
        return iccid

    async def notify(
        self, url: str, iccid: str, point: object = 3, status: str = "Executed-Success", **fields: Any
    ) -> int:
        """Sends handleDownloadProgressInfo with our client certificate; `fields` replace or add, None leaves out. Gives
        the HTTP status that was answered."""
        body = progress(iccid, point, status, **fields)
        headers = {"Content-Type": "application/json;charset=UTF-8", "X-Admin-Protocol": "gsma/rsp/v2.1.0"}
        async with (
            aiohttp.ClientSession(trust_env=False, headers=headers) as session,
            session.post(url, data=body, ssl=self.notifier) as response,
        ):
            return response.status

    # The functions

    def downloadOrder(self, body: Mapping[str, Any]) -> dict[str, Any]:
        iccid, wanted = self._iccid(body), body.get("profileType")
        if wanted is not None and wanted not in {one.profile_type for one in self.profiles.values()}:
            raise Refused("8.2.5/3.9")
        if iccid is None:
            iccid = next((key for key, one in self.profiles.items() if self._free(one, wanted)), None)
            if iccid is None:
                raise Refused("8.2.5/3.7")
        profile = self._profile(iccid)
        if wanted not in (None, profile.profile_type):
            raise Refused("8.2.5/3.8")
        if profile.state != "AVAILABLE":
            raise Refused("8.2.1/3.3")
        profile.state, profile.orders = "ALLOCATED", profile.orders + 1
        said = self.answers_iccid or iccid
        return {"iccid": said.ljust(20, "F") if self.pads else said}

    def confirmOrder(self, body: Mapping[str, Any]) -> dict[str, Any]:
        profile, matching_id = self._profile(self._iccid(body)), body.get("matchingId") or uuid.uuid4().hex.upper()
        said = {"matchingId": matching_id, "smdpAddress": HOST}
        if self.retries and profile.state == "RELEASED" and profile.matching_id == matching_id:
            return said
        if profile.state != "ALLOCATED":
            raise Refused("8.2.1/3.3")
        if matching_id in {one.matching_id for one in self.profiles.values()}:
            raise Refused("8.2.6/3.3")
        profile.state = "RELEASED" if body["releaseFlag"] else "CONFIRMED"
        profile.matching_id, profile.confirmations = matching_id, profile.confirmations + 1
        return said

    def cancelOrder(self, body: Mapping[str, Any]) -> dict[str, Any]:
        profile = self._profile(self._iccid(body))
        if profile.state not in ("ALLOCATED", "CONFIRMED", "RELEASED"):
            raise Refused("8.2.1/3.3")
        profile.state = "AVAILABLE" if body["finalProfileStatusIndicator"] == "Available" else "UNAVAILABLE"
        profile.matching_id = None
        return {}

    def releaseProfile(self, body: Mapping[str, Any]) -> dict[str, Any]:
        profile = self._profile(self._iccid(body))
        if profile.state != "CONFIRMED":
            raise Refused("8.2.1/3.5")
        profile.state = "RELEASED"
        return {}

    def getProfileStatus(self, body: Mapping[str, Any]) -> dict[str, Any]:
        asked = [one["iccid"].rstrip("F") for one in body["iccidList"]]
        return {
            "profileStatusList": [
                {
                    "iccid": iccid,
                    "state": (one := self.profiles[iccid]).state,
                    "eid": one.eid,
                    "acToken": one.matching_id,
                    "lockFlag": False,
                    "status_last_update_timestamp": "2026-11-21T08:00:00Z",
                }
                for iccid in asked
                if iccid in self.profiles
            ]
        }

    def _iccid(self, body: Mapping[str, Any]) -> str | None:
        return body["iccid"].rstrip("F") if "iccid" in body else None

    def _profile(self, iccid: str | None) -> Profile:
        if iccid not in self.profiles:
            raise Refused("8.2.1/3.9")
        return self.profiles[iccid]

    def _free(self, profile: Profile, profile_type: object) -> bool:
        return profile.state == "AVAILABLE" and profile.profile_type == profile_type

    # HTTP

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.serve_instead is not None:
            return await self.serve_instead(request)
        function, body = request.match_info["function"], msgspec.json.decode(await request.read())
        self.calls.append(Call(function, body, request.headers))
        fault = self.fault(function, body)
        if fault is not None and not fault.executed:
            return await self._fail(request, fault.how, self._failed(fault.how))
        answer = self._execute(function, body, request.headers)
        if fault == TWICE:
            return _json(self._execute(function, body, request.headers))
        return await self._fail(request, fault.how, answer) if fault else _json(answer)

    def _execute(self, function: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        if not headers.get("X-Admin-Protocol", "").startswith("gsma/rsp/v2."):
            return self._failed("1.6/2.1")
        if body["header"]["functionRequesterIdentifier"] != REQUESTER:
            return self._failed("1.1/3.9")
        try:
            payload = getattr(self, function)(body)
        except Refused as refused:
            return self._failed(str(refused))
        return {"header": {"functionExecutionStatus": {"status": "Executed-Success"}}, **payload}

    def _failed(self, code: str) -> dict[str, Any]:
        subject, _, reason = code.partition("/")
        data = {"subjectCode": subject, "reasonCode": reason, "message": "the MatchingID SECRET-CANARY is refused"}
        return {"header": {"functionExecutionStatus": {"status": "Failed", "statusCodeData": data}}}

    async def _fail(self, request: web.Request, how: str, answer: Mapping[str, Any]) -> web.StreamResponse:
        assert request.transport is not None
        if how == "RESET":
            request.transport.abort()
        elif how == "HANG":
            await asyncio.Event().wait()
        elif how == "HTTP 500":
            return web.Response(status=500, text='{"header": {"functionExecutionStatus": {"status": "Failed"}}}')
        elif how == "HTML":
            return web.Response(text="<html><body>Bad gateway</body></html>", content_type="text/html")
        elif how == "HALF":
            text = msgspec.json.encode(answer)
            return web.Response(body=text[: len(text) // 2], content_type="application/json")
        elif how == "EXPIRED":
            return _json({"header": {"functionExecutionStatus": {"status": "Expired"}}})
        return _json(self._failed(how))


def progress(iccid: object, point: object = 3, status: str = "Executed-Success", **fields: Any) -> bytes:
    """A body of handleDownloadProgressInfo."""
    body = {
        "header": {"functionRequesterIdentifier": "SMDP", "functionCallIdentifier": str(uuid.uuid4())},
        "iccid": iccid,
        "profileType": "TYPE",
        "timestamp": "2026-11-21T09:00:00Z",
        "notificationPointId": point,
        "notificationPointStatus": {"status": status},
        **fields,
    }
    return msgspec.json.encode({name: value for name, value in body.items() if value is not None})


def _json(answer: Mapping[str, Any]) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(answer),
        headers={"Content-Type": "application/json;charset=UTF-8", "X-Admin-Protocol": "gsma/rsp/v2.1.0"},
    )


@asynccontextmanager
async def running_smdp(
    folder: Path,
    *,
    profiles: Mapping[str, Sequence[str]],
    fault: Faults | Iterable[Fault | None] = (),
    server: Identity | None = None,
    **traits: Any,
) -> AsyncIterator[Smdp]:
    """The SM-DP+, its certificates in `folder`. server: shown instead of its own. traits: see Smdp."""
    authority = Authority("SM-DP+ test CA")
    shown, ours = authority.issue("smdp"), authority.issue("dealer")
    smdp = Smdp(
        {iccid: Profile(profile_type) for profile_type, some in profiles.items() for iccid in some},
        fault if callable(fault) else plan(fault),
        tls(folder, "client", shown, authority.pem),
        authority,
        {"ca": authority.pem, "cert": ours.cert, "key": ours.key},
        **traits,
    )
    app = web.Application()
    app.router.add_post(PATH + "{function}", smdp.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handle_signals=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls(folder, "server", server or shown, authority.pem))
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        smdp.base_url = f"https://{host}:{port}"
        yield smdp
    finally:
        await runner.cleanup()


@asynccontextmanager
async def handshakes(folder: Path, authority: Authority, version: ssl.TLSVersion) -> AsyncIterator[str]:
    """An SM-DP+ that does no more than shake hands: its address. It says why it refuses; asyncio's servers do not."""
    context = tls(folder, "server", authority.issue("smdp"), authority.pem)
    context.minimum_version = context.maximum_version = version

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hands = context.wrap_bio(incoming, outgoing, server_side=True)
        while data := await reader.read(65_536):
            incoming.write(data)
            with suppress(ssl.SSLError):
                hands.do_handshake()
            writer.write(outgoing.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
