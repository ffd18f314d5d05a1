"""An SM-DP+ as a supplier: profiles ordered over ES2+ (GSMA SGP.22 5.3).

A purchase is two calls: downloadOrder reserves the planned ICCID, confirmOrder gives it the planned MatchingID and
releases it. Before that nothing is bought, as nobody can download a profile without a MatchingID.

ES2+ cannot be asked what became of a call whose answer was lost. But the ids are ours, so the call is repeated: that an
id is in use then means that the lost call was carried out. A proxy may repeat a call, too, so that the first answer we
see is that of the second. Where it stays open whether a profile was confirmed, or with which MatchingID, it is burnt
(step CANCEL) and written off, and only then other ids are taken (docs/decisions/0014-es2plus-conflicts.md).
"""

import re
import ssl
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from dealer_server.rules.esim import activation_code
from dealer_server.rules.lifecycle.report import Report
from dealer_server.suppliers.contract import (
    BadEvent,
    Bought,
    Caps,
    Done,
    Event,
    Health,
    NotVoided,
    Outcome,
    Pending,
    ProfileReport,
    Purchase,
    Rejected,
    RejectedCode,
    Sms,
    SmsFailed,
    SmsOutcome,
    SuspensionOutcome,
    SuspensionRefused,
    Unknown,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)
from dealer_server.suppliers.es2plus import messages
from dealer_server.suppliers.es2plus.messages import Executed, Failed, Point, ProfileStatus, TableName, Unclear

PATH = "/gsma/rsp2/es2plus/"
CONFIRM, CANCEL = "CONFIRM", "CANCEL"
CONFIRM_TAKEN = "CONFIRM TAKEN"  # the first downloadOrder found the ICCID in use: by itself, or by somebody else
BURNT = {"finalProfileStatusIndicator": "Unavailable"}
MOST_SECONDS = 20.0  # a probe is two calls
MOST_ANSWER_BYTES = 1024 * 1024
STATUSES_PER_CALL = 100
IDLE_SECONDS = 4.0  # shorter than servers keep a connection, so that we rarely write into a closing one


class Es2PlusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How an SM-DP+ is reached and what is agreed with it. `ca`, `cert` and `key` are PEM text, not paths.

    ca: the authority that signs the SM-DP+'s certificate. cert, key: our certificate and its key. requester_id: our
    functionRequesterIdentifier. smdp_address: the host that phones download from. notification_table: what its
    notificationPointIds mean, by a vendor's name or as {"3": "DOWNLOAD"}. send_profile_type: downloadOrder names the
    profile type besides the ICCID. vendor_profile_status: it has getProfileStatus. Raises ValueError, whose one line
    names the settings and no secret.
    """

    base_url: str
    requester_id: str
    smdp_address: str
    ca: str
    cert: str
    key: str
    notification_table: TableName | dict[str, Point] = "standard"
    protocol: str = "gsma/rsp/v2.2.2"
    pad_iccid: bool = False
    send_profile_type: bool = False
    vendor_profile_status: bool = False
    parallel: int = 4
    connect_seconds: float = 3.0
    read_seconds: float = 10.0

    def __post_init__(self) -> None:
        if lines := [line for wrong, line in _CHECKS if wrong(self)]:
            raise ValueError("; ".join(lines))

    def __repr__(self) -> str:
        return f"Es2PlusSettings(base_url={self.base_url!r})"  # the key stays out of logs


class NotSent(msgspec.Struct, frozen=True):
    """The call never reached the SM-DP+'s software."""

    code: RejectedCode
    message: str


Answer = Executed | Failed | Unclear | NotSent


class Es2Plus:
    """`call_id` makes functionCallIdentifiers."""

    kind = "es2plus"

    def __init__(self, code: str, settings: Es2PlusSettings, call_id: Callable[[], str] = lambda: str(uuid.uuid4())):
        self._code = code
        self._settings = settings
        self._call_id = call_id
        table = settings.notification_table
        self._points = messages.POINTS[table] if isinstance(table, str) else table
        self._session: aiohttp.ClientSession | None = None
        self._voids_lost: set[str] = set()

    @property
    def code(self) -> str:
        return self._code

    @property
    def caps(self) -> Caps:
        return Caps(parallel=self._settings.parallel, polled=self._settings.vendor_profile_status, plans_ids=True)

    # Buying

    async def allocate(self, purchase: Purchase, now: datetime) -> Outcome:
        if purchase.planned_iccid is None or purchase.planned_matching_id is None:
            return Rejected("BAD_REQUEST", True, "no ICCID and MatchingID were planned")
        if purchase.step.startswith(CANCEL):
            return await self._burn(purchase)
        answer = await self._take_step(purchase)
        if isinstance(answer, NotSent):
            return _refused(answer.code, answer.message, whole=answer.code == "CONFIG")
        if not isinstance(answer, Failed) or answer.meaning == "UNKNOWN":
            return self._after(purchase, answer)
        if answer.meaning == "CONFLICT" and purchase.step.startswith(CONFIRM):
            return await self._confirmed_or_not(purchase, answer)
        if answer.code in messages.IN_USE:
            return Pending(0, step=CONFIRM_TAKEN)
        return _refused(answer.meaning, answer.message, whole=answer.requester_refused)

    async def probe(self, purchase: Purchase, now: datetime) -> Outcome:
        """Repeats the step. A repeated call that cannot be made says nothing about the lost one."""
        if purchase.step.startswith(CANCEL):
            return await self._burn(purchase)
        answer = await self._take_step(purchase)
        if isinstance(answer, NotSent):
            return Unknown(answer.message)
        if not isinstance(answer, Failed) or answer.meaning in ("TEMPORARY", "UNKNOWN"):
            return self._after(purchase, answer)
        if purchase.step.startswith(CONFIRM):
            return await self._confirmed_or_not(purchase, answer)
        if answer.code in messages.IN_USE:
            return Pending(0, step=CONFIRM)
        return _refused(answer.meaning, answer.message)

    async def _take_step(self, purchase: Purchase) -> Answer:
        iccid = self._wire(purchase.planned_iccid)
        if purchase.step.startswith(CONFIRM):
            return await self._call(
                "confirmOrder", iccid=iccid, releaseFlag=True, matchingId=purchase.planned_matching_id
            )
        profile_type = {"profileType": purchase.sku} if self._settings.send_profile_type else {}
        return await self._call("downloadOrder", iccid=iccid, **profile_type)

    def _after(self, purchase: Purchase, answer: Answer) -> Outcome:
        """What follows from a step that was taken, or whose answer was lost."""
        if not isinstance(answer, Executed):
            return Unknown(_text(answer))
        if purchase.step.startswith(CONFIRM):
            return self._done(purchase, answer)
        if answer.iccid is not None and answer.iccid.rstrip("Ff") != purchase.planned_iccid:
            return Rejected("CONFIG", True, "the SM-DP+ reserved another ICCID than the one asked for")
        return Pending(0, step=CONFIRM)

    def _done(self, purchase: Purchase, answer: Executed) -> Outcome:
        matching_id = answer.matching_id or purchase.planned_matching_id or ""
        try:
            code = messages.activation_code((answer.smdp_address, self._settings.smdp_address), matching_id)
        except ValueError as wrong:
            return Unknown(f"the activation code {wrong}")
        return Done(purchase.planned_iccid or "", code)

    async def _confirmed_or_not(self, purchase: Purchase, refused: Failed) -> Outcome:
        """confirmOrder was refused, but it, or an earlier one, may have been carried out. An ICCID in use does not
        prove that the MatchingID is ours: getProfileStatus does, or that our MatchingID is in use. Else the profile is
        burnt, but not one that somebody else may have sold."""
        burn = Pending(0, step=f"{CANCEL} {refused.code}")
        if refused.meaning == "CONFLICT" and self._settings.vendor_profile_status:
            answer = await self._status([purchase.planned_iccid])
            if not isinstance(answer, Executed):
                return Unknown(f"getProfileStatus: {_text(answer)}")
            found = _of(purchase.planned_iccid, answer) or ProfileStatus("")
            if found.burnt or found.matching_id not in (None, "", purchase.planned_matching_id):
                return _refused("CONFLICT", "the ICCID is another's: it is burnt, or has a MatchingID that is not ours")
            if found.matching_id:
                return self._done(purchase, Executed()) if found.smdp_status else burn
        elif refused.code == messages.MATCHING_ID_IN_USE:
            return self._done(purchase, Executed())
        if purchase.step == CONFIRM_TAKEN:
            return _written_off("both calls were refused as the ICCID is in use, by us or by somebody else: left alone")
        return burn

    async def _burn(self, purchase: Purchase) -> Outcome:
        """Makes sure that no profile is left there. Nobody has its code, so if it is not available any more, it was not
        downloaded, but burnt by an earlier call."""
        refused = Failed(purchase.step.removeprefix(CANCEL).strip()).message
        answer = await self._call("cancelOrder", iccid=self._wire(purchase.planned_iccid), **BURNT)
        if isinstance(answer, Executed) or (isinstance(answer, Failed) and answer.code in messages.BURNT_BEFORE):
            return _written_off(f"confirmOrder was refused and the profile burnt; {refused}")
        if isinstance(answer, Failed) and answer.code == messages.ICCID_UNKNOWN:
            return _refused("CONFLICT", f"confirmOrder was refused and there is no such profile; {refused}")
        return Unknown(f"cancelOrder: {_text(answer)}")

    # After the sale

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        """Burns the profile. That it is not available means that it was downloaded or, where the answer to an earlier
        call was lost, that it is burnt: getProfileStatus tells. What is refused for a reason outside the profile is
        asked again."""
        answer = await self._call("cancelOrder", iccid=self._wire(unit.iccid), **BURNT)
        if isinstance(answer, Failed) and answer.code.startswith("8.2") and answer.meaning != "UNKNOWN":
            return await self._not_voided(unit, answer)
        if isinstance(answer, Executed):
            self._voids_lost.discard(unit.iccid)
            return VoidDone()
        if isinstance(answer, Unclear) or (isinstance(answer, Failed) and answer.meaning == "UNKNOWN"):
            self._voids_lost.add(unit.iccid)
        return Unknown(f"cancelOrder: {_text(answer)}")

    async def _not_voided(self, unit: VoidUnit, refused: Failed) -> VoidOutcome:
        burnt = refused.code in messages.IN_USE and unit.iccid in self._voids_lost
        if refused.code in messages.IN_USE and self._settings.vendor_profile_status:
            answer = await self._status([unit.iccid])
            if not isinstance(answer, Executed):
                return Unknown(f"getProfileStatus: {_text(answer)}")
            found = _of(unit.iccid, answer)
            burnt = found is not None and found.burnt
        elif refused.code in messages.IN_USE and not burnt and unit.asked_before:
            return Unknown("cancelOrder: refused, but an earlier one without an answer may have burnt it; look there")
        self._voids_lost.discard(unit.iccid)
        if burnt:
            return VoidDone()
        return NotVoided(f"the SM-DP+ does not cancel the profile, which may be downloaded already: {refused.message}")

    async def set_suspended(self, esim: Bought, suspended: bool, now: datetime) -> SuspensionOutcome:
        return SuspensionRefused("ES2+ suspends no profile")

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> list[ProfileReport]:
        """By getProfileStatus; an eSIM whose call failed is missing."""
        reports: list[ProfileReport] = []
        for first in range(0, len(bought), STATUSES_PER_CALL):
            some = bought[first : first + STATUSES_PER_CALL]
            answer = await self._status([esim.iccid for esim in some])
            if isinstance(answer, Executed):
                reports += [_report(status, now) for esim in some if (status := _of(esim.iccid, answer))]
        return reports

    async def send_sms(self, sms: Sms, now: datetime) -> SmsOutcome:
        return SmsFailed("ES2+ has no SMS")

    def parse_event(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Event:
        try:
            notification = messages.notification(body, self._points, now)
        except ValueError as wrong:
            raise BadEvent(str(wrong)) from None
        report = notification.report
        reports = () if report is None else (ProfileReport(report, iccid=notification.iccid),)
        return Event(notification.key, notification.kind, reports)

    async def health(self) -> Health:
        """A GET, which no function answers: whatever HTTP status comes, both certificates were accepted."""
        try:
            async with self._open().get(self._address(""), allow_redirects=False) as response:
                return Health(response.status < 500, f"HTTP {response.status}")
        except (aiohttp.ClientError, OSError) as error:
            return Health(False, _text(_failure(error)))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # The wire

    async def _status(self, iccids: Sequence[str | None]) -> Answer:
        return await self._call("getProfileStatus", iccidList=[{"iccid": self._wire(iccid)} for iccid in iccids])

    async def _call(self, function: str, **fields: Any) -> Answer:
        header = {
            "functionRequesterIdentifier": self._settings.requester_id,
            "functionCallIdentifier": self._call_id(),
        }
        call = msgspec.json.encode({"header": header, **fields})
        try:
            async with self._open().post(self._address(function), data=call, allow_redirects=False) as response:
                body = await _read(response)
        except (aiohttp.ClientError, OSError) as error:
            return _failure(error)
        return messages.answer(body) if response.status == 200 else Unclear(f"HTTP {response.status}")

    def _address(self, function: str) -> str:
        return self._settings.base_url.rstrip("/") + PATH + function

    def _wire(self, iccid: str | None) -> str:
        return messages.padded(iccid or "", self._settings.pad_iccid)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = _session(self._settings)
        return self._session


def _refused(code: RejectedCode, message: str, *, whole: bool = False) -> Rejected:
    """A CONFLICT is about the ids: with fresh ones the same SM-DP+ may be asked."""
    return Rejected(code, code != "CONFLICT", message, whole)


def _written_off(message: str) -> Rejected:
    return Rejected("CONFLICT", False, message, written_off=True)


def _text(answer: Answer) -> str:
    return answer.reason if isinstance(answer, Unclear) else "" if isinstance(answer, Executed) else answer.message


def _of(iccid: str | None, answer: Answer) -> ProfileStatus | None:
    found = answer.profile_status_list if isinstance(answer, Executed) else ()
    return next((status for status in found if status.iccid.rstrip("Ff") == iccid), None)


def _report(status: ProfileStatus, now: datetime) -> ProfileReport:
    report = Report(messages.moment(status.at, now), status.smdp_status, eid=status.eid)
    return ProfileReport(report, iccid=status.iccid.rstrip("Ff"))


def _session(settings: Es2PlusSettings) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=_mutual_tls(settings)),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={
            "Content-Type": "application/json",
            "X-Admin-Protocol": settings.protocol,
            "User-Agent": "esim-dealer-es2plus/1",
            "Accept-Encoding": "identity",
        },
        timeout=aiohttp.ClientTimeout(
            connect=settings.connect_seconds,  # names, TCP and TLS: when it is over nothing was sent
            sock_read=settings.read_seconds,
            total=settings.connect_seconds + settings.read_seconds,
            ceil_threshold=2 * MOST_SECONDS,  # deadlines are not rounded up to whole seconds
        ),
        auto_decompress=False,
        trust_env=False,
    )


def _mutual_tls(settings: Es2PlusSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=settings.ca)
    _show(context, settings)
    return context


def _show(context: ssl.SSLContext, settings: Es2PlusSettings) -> None:
    """Python reads a private key from a file only: it is in a folder of its own for this moment."""
    with TemporaryDirectory(prefix="es2plus-") as folder:
        file = Path(folder, "client.pem")
        file.touch(mode=0o600)
        file.write_text(f"{settings.cert}\n{settings.key}\n")
        context.load_cert_chain(file, password="")  # an encrypted key fails instead of asking the terminal


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MOST_ANSWER_BYTES:
            response.close()
            raise aiohttp.ClientPayloadError("the answer is too long")
    return bytes(body)


# The SM-DP+ refuses our certificate. In TLS 1.3 we learn it only when we read the answer, but what we wrote meanwhile
# was not read.
_CERTIFICATE_REFUSED = re.compile(
    r"ALERT_(CERTIFICATE_[A-Z]+|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)"
)


def _failure(error: Exception) -> NotSent | Unclear:
    """What an exception of aiohttp says about the call: nothing was sent, or its effect is unknown."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return NotSent("CONFIG", "we do not trust the SM-DP+'s certificate")
    if refused := _CERTIFICATE_REFUSED.search(str(error)):
        return NotSent("CONFIG", f"the SM-DP+ does not accept our certificate ({refused[0]})")
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return NotSent("CONFIG", "the TLS handshake failed")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return NotSent("TEMPORARY", "the SM-DP+ cannot be reached")
    return Unclear("no answer in time" if isinstance(error, TimeoutError) else f"no answer ({type(error).__name__})")


# Settings

_REQUESTER_ID = re.compile(r"[!-~]{1,128}\Z")
_PROTOCOL = re.compile(r"gsma/rsp/v[0-9]+\.[0-9]+\.[0-9]+\Z")


def _base_url_wrong(settings: Es2PlusSettings) -> bool:
    try:
        parts = urlsplit(settings.base_url)
        usual = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return True
    return not usual or "@" in parts.netloc or bool(parts.query or parts.fragment) or not settings.base_url.isascii()


def _address_wrong(settings: Es2PlusSettings) -> bool:
    try:
        return activation_code.parse(f"LPA:1${settings.smdp_address}$X").smdp_address != settings.smdp_address
    except ValueError:
        return True


def _ca_wrong(settings: Es2PlusSettings) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=settings.ca)
    except (ssl.SSLError, ValueError, TypeError):
        return True
    return False


def _cert_wrong(settings: Es2PlusSettings) -> bool:
    try:
        _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings)
    except (ssl.SSLError, ValueError, TypeError):
        return True
    return False


def _table_wrong(settings: Es2PlusSettings) -> bool:
    table = settings.notification_table
    return not isinstance(table, str) and not all(point_id.isascii() and point_id.isdecimal() for point_id in table)


def _seconds_wrong(settings: Es2PlusSettings) -> bool:
    connect, read = settings.connect_seconds, settings.read_seconds
    return not (connect > 0 and read > 0 and connect + read <= MOST_SECONDS)


def _requester_wrong(settings: Es2PlusSettings) -> bool:
    return not _REQUESTER_ID.match(settings.requester_id)


def _protocol_wrong(settings: Es2PlusSettings) -> bool:
    return not _PROTOCOL.match(settings.protocol)


def _parallel_wrong(settings: Es2PlusSettings) -> bool:
    return not 1 <= settings.parallel <= 64


_CHECKS: tuple[tuple[Callable[[Es2PlusSettings], bool], str], ...] = (
    (_base_url_wrong, "baseUrl must be an https address such as https://smdp.example.com:8443"),
    (_requester_wrong, "requesterId must be the functionRequesterIdentifier agreed with the SM-DP+'s operator"),
    (_address_wrong, "smdpAddress must be the host that phones download from, such as rsp.example.com"),
    (_ca_wrong, "ca must be the certificates of the authority that signs the SM-DP+'s, as PEM text"),
    (_cert_wrong, "cert and key must be our certificate and its private key without a password, as PEM text"),
    (_table_wrong, 'notificationTable must have notificationPointIds such as "3" as its keys'),
    (_protocol_wrong, "protocol must have the form gsma/rsp/v2.2.2"),
    (_parallel_wrong, "parallel must be from 1 to 64"),
    (_seconds_wrong, f"connectSeconds and readSeconds must be above 0 and {MOST_SECONDS:g} together at most"),
)
