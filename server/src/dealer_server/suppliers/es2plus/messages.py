"""What does an SM-DP+ say over ES2+, and what does it mean for us? (SGP.22 5.3)

Answers are read strictly: what is not understood says nothing about whether a call was carried out. Notifications are
read leniently, as no two SM-DP+s send the same: what is not understood changes nothing.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from dealer_server.rules.esim import activation_code as code_rules
from dealer_server.rules.esim import iccid as iccid_rules
from dealer_server.rules.lifecycle.report import Report

# Answers

Meaning = Literal["OUT_OF_STOCK", "CONFIG", "BAD_REQUEST", "CONFLICT", "TEMPORARY", "UNKNOWN"]

# Codes are compared as text: 3.1 is not 3.10.
_MEANINGS: dict[str, tuple[Meaning, str]] = {
    "8.2.5/3.7": ("OUT_OF_STOCK", "no profile of this type is left"),
    "8.2.5/3.9": ("CONFIG", "the profile type is unknown there"),
    "8.2.1/3.9": ("CONFIG", "the ICCID is unknown there"),
    "8.2.1/1.2": ("CONFIG", "the profile is not ours to order"),
    "8.2.5/1.2": ("CONFIG", "the profile type is not ours to order"),
    "8.2.5/3.8": ("CONFIG", "the ICCID is not of this profile type"),
    "8.2.1/3.3": ("CONFLICT", "the ICCID is in use"),
    "8.2.1/3.5": ("CONFLICT", "the profile cannot be released any more"),
    "8.2.6/3.3": ("CONFLICT", "the MatchingID is in use"),
    "8.2.6/3.10": ("CONFLICT", "the MatchingID belongs to another profile"),
    "8.1.1/3.10": ("CONFLICT", "the EID belongs to another profile"),
    "8.8.5/4.1": ("CONFLICT", "the order has expired there"),
    "8.8.5/6.4": ("CONFLICT", "the profile was downloaded in vain too often"),
    "8.2.7/6.4": ("CONFLICT", "the confirmation code was wrong too often"),
    "8.1.1/2.2": ("BAD_REQUEST", "an EID is needed"),
    "1.6/2.1": ("BAD_REQUEST", "a parameter is invalid"),
    "1.6/2.2": ("BAD_REQUEST", "a parameter is missing"),
    "1.6/2.3": ("BAD_REQUEST", "a parameter is missing under this condition"),
    "8.9/4.2": ("TEMPORARY", "the SM-DS fails"),
    "8.9/5.1": ("TEMPORARY", "the SM-DS cannot be reached"),
    "1.2/4.4": ("TEMPORARY", "it is busy"),
    "1.2/4.2": ("UNKNOWN", "it failed while it executed the call"),
    "1.6/5.3": ("UNKNOWN", "the call expired there"),
    "1.6/5.4": ("UNKNOWN", "it got no response"),
}
_REQUESTER_UNKNOWN: tuple[Meaning, str] = ("CONFIG", "it does not know our functionRequesterIdentifier")
_UNLISTED: tuple[Meaning, str] = ("UNKNOWN", "a code we do not know")
_CODE = re.compile(r"[0-9.]{1,16}/[0-9.]{1,16}\Z")

IN_USE = frozenset(("8.2.1/3.3", "8.2.6/3.3"))
"""One of our planned ids is taken: by ourselves, where the answer of an earlier call was lost."""
MATCHING_ID_IN_USE = "8.2.6/3.3"
"""Ours are random, so one that is in use was given to our profile by an earlier call."""
ICCID_UNKNOWN = "8.2.1/3.9"
_PROFILE_LOST = frozenset(("8.8.5/4.1", "8.8.5/6.4", "8.2.7/6.4"))
BURNT_BEFORE = frozenset(("8.2.1/3.3", *_PROFILE_LOST))
"""cancelOrder found nothing that could still be downloaded."""

_STATES = {
    "RELEASED": "RELEASED",
    "DOWNLOADED": "DOWNLOAD",
    "INSTALLED": "INSTALLATION",
    "ENABLED": "ENABLED",
    "DISABLED": "DISABLED",
    "DELETED": "DELETED",
    "ERROR": "ERROR",
}


class ProfileStatus(msgspec.Struct, frozen=True):
    """One profile in the answer of getProfileStatus, a vendor's extension."""

    iccid: str
    state: str = ""
    eid: str | None = None
    ac_token: str | None = msgspec.field(default=None, name="acToken")
    at: str | int | float | None = msgspec.field(default=None, name="status_last_update_timestamp")

    @property
    def smdp_status(self) -> str | None:
        """None before its release."""
        return _STATES.get(self.state.upper())

    @property
    def burnt(self) -> bool:
        return self.state.upper() == "UNAVAILABLE"

    @property
    def matching_id(self) -> str | None:
        """The acToken, which is a MatchingID or a whole activation code."""
        return self.ac_token.split("$")[2] if self.ac_token and self.ac_token.count("$") >= 2 else self.ac_token


class Executed(msgspec.Struct, frozen=True, rename="camel"):
    """The function was carried out. What it answered, as far as it did."""

    iccid: str | None = None
    matching_id: str | None = None
    smdp_address: str | None = None
    profile_status_list: tuple[ProfileStatus, ...] = ()


class Failed(msgspec.Struct, frozen=True):
    """The function was surely not carried out, unless `meaning` is UNKNOWN. `code`: subject/reason, as 8.2.1/3.3."""

    code: str

    @property
    def meaning(self) -> Meaning:
        return self._row[0]

    @property
    def message(self) -> str:
        """For the operator, in our own words: theirs may repeat a MatchingID."""
        return f"{self.code if _CODE.match(self.code) else '?'}: {self._row[1]}"

    @property
    def requester_refused(self) -> bool:
        """Whether it is ourselves that are refused, whatever we ask for."""
        return self._row is _REQUESTER_UNKNOWN

    @property
    def _row(self) -> tuple[Meaning, str]:
        any_reason = _REQUESTER_UNKNOWN if re.match(r"1\.1/[0-9.]{1,16}\Z", self.code) else _UNLISTED
        return _MEANINGS.get(self.code, any_reason)


class Unclear(msgspec.Struct, frozen=True):
    """Nothing follows from this answer. `reason` is for the operator and holds no secret."""

    reason: str


class _StatusCodeData(msgspec.Struct, rename="camel"):
    subject_code: str
    reason_code: str


class _Status(msgspec.Struct, rename="camel"):
    status: str
    status_code_data: _StatusCodeData | None = None


class _Header(msgspec.Struct, rename="camel"):
    function_execution_status: _Status


class _Answer(msgspec.Struct):
    header: _Header


_EXECUTED = frozenset(("Executed-Success", "Executed-WithWarning"))


def answer(body: bytes) -> Executed | Failed | Unclear:
    """Reads the body of an answer that came with HTTP status 200."""
    try:
        status = msgspec.json.decode(body, type=_Answer).header.function_execution_status
        if status.status in _EXECUTED:
            return msgspec.json.decode(body, type=Executed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Unclear("the answer is not ES2+ JSON")
    if status.status == "Failed" and (found := status.status_code_data) is not None:
        return Failed(f"{found.subject_code}/{found.reason_code}")
    return Unclear("the answer is Expired" if status.status == "Expired" else "the answer says neither yes nor no")


def padded(iccid: str, pad: bool) -> str:
    """The ICCID as it is sent: some SM-DP+s want 20 places, the last filled with F."""
    return iccid.ljust(20, "F") if pad else iccid


def activation_code(addresses: tuple[str | None, ...], matching_id: str) -> str:
    """LPA:1$address$matchingId with the first of the addresses that is a host name. Raises ValueError."""
    if "$" in matching_id:
        raise ValueError("must have a MatchingID without $")
    fault = ValueError("must have an SM-DP+ address")
    for address in addresses:
        try:
            return code_rules.parse(f"LPA:1${address or ''}${matching_id}").text
        except ValueError as error:
            fault = error
    raise fault


# Notifications

Point = Literal["ELIGIBILITY", "CONFIRMATION_CODE", "DOWNLOAD", "INSTALLATION", "ENABLED", "DISABLED", "DELETED"]
TableName = Literal["standard", "ostelco", "monogoto", "cmi"]

_STANDARD: dict[str, Point] = {"1": "ELIGIBILITY", "2": "CONFIRMATION_CODE", "3": "DOWNLOAD", "4": "INSTALLATION"}

POINTS: Mapping[TableName, Mapping[str, Point]] = {
    "standard": _STANDARD,
    "ostelco": {**_STANDARD, "5": "DELETED"},
    "monogoto": {**_STANDARD, "5": "INSTALLATION", "6": "ENABLED", "7": "DISABLED", "8": "DELETED"},
    "cmi": {**_STANDARD, "5": "DELETED", "101": "ENABLED", "102": "DISABLED"},
}
"""What notificationPointId means: it differs from vendor to vendor."""

_CHECKS = frozenset(("ELIGIBILITY", "CONFIRMATION_CODE"))
_EID = re.compile(r"[0-9]{32}\Z")
_POINT_ID = re.compile(r"[0-9]{1,9}\Z")
_EARLIEST = 1_000_000_000  # seconds since the epoch; before there were eSIMs


class Notification(msgspec.Struct, frozen=True):
    """What a notification says. `key` is the same when it comes twice. report None: it changes nothing."""

    key: bytes
    kind: str
    iccid: str
    report: Report | None


class _PointStatus(msgspec.Struct, rename="camel"):
    status: str
    status_code_data: Any = None


class _Message(msgspec.Struct, rename="camel"):
    iccid: str
    notification_point_id: int | str
    notification_point_status: _PointStatus
    timestamp: Any = None
    time_stamp: Any = None
    eid: Any = None
    result_data: Any = None

    @property
    def point_id(self) -> str:
        return str(self.notification_point_id).strip()

    @property
    def reported_at(self) -> Any:
        return self.time_stamp if self.timestamp is None else self.timestamp

    @property
    def code(self) -> str:
        data = self.notification_point_status.status_code_data
        return f"{data.get('subjectCode')}/{data.get('reasonCode')}" if isinstance(data, dict) else ""


def notification(body: bytes, points: Mapping[str, Point], now: datetime) -> Notification:
    """Reads handleDownloadProgressInfo, or handleNotification in the same form. Raises ValueError, without repeating
    what was sent."""
    try:
        message = msgspec.json.decode(body, type=_Message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ValueError("not a notification of ES2+") from None
    iccid = iccid_rules.parse(message.iccid)
    if not _POINT_ID.match(message.point_id):
        raise ValueError("the notificationPointId is not a number")
    point = points.get(message.point_id)
    if point is None:
        return Notification(_key(message, iccid), "UNKNOWN_POINT", iccid, None)
    executed = message.notification_point_status.status.startswith("Executed")
    kind = point if executed else f"{point}_FAILED"
    return Notification(_key(message, iccid), kind, iccid, _report(message, point, executed, now))


def moment(at: object, now: datetime) -> datetime:
    """When it was: ISO 8601, or seconds or milliseconds since the epoch. `now` where that is no time, or none that can
    be."""
    try:
        parsed = _parsed(at)
    except (ValueError, OverflowError, OSError):
        return now
    return min(parsed, now) if parsed.timestamp() >= _EARLIEST else now


def _parsed(at: object) -> datetime:
    if isinstance(at, str) and not at.strip().isdecimal():
        parsed = datetime.fromisoformat(at.strip())
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    if not isinstance(at, str | int | float):
        raise ValueError("no time")
    seconds = float(at)
    return datetime.fromtimestamp(seconds / 1_000 if seconds > 1e11 else seconds, UTC)


def _report(message: _Message, point: Point, executed: bool, now: datetime) -> Report | None:
    smdp_status = _reached(point) if executed else _after_failure(message, point)
    if smdp_status is None:
        return None
    eid = message.eid if executed and isinstance(message.eid, str) and _EID.match(message.eid) else None
    return Report(moment(message.reported_at, now), smdp_status, eid=eid)


def _reached(point: Point) -> str | None:
    return None if point in _CHECKS else point


def _after_failure(message: _Message, point: Point) -> str | None:
    """A profile that cannot be downloaded any more is an ERROR; after a failed installation a phone may try again."""
    if message.notification_point_status.status != "Failed":
        return None
    if point in _CHECKS or message.code in _PROFILE_LOST:
        return "ERROR"
    return "RELEASED" if point == "INSTALLATION" else None


def _key(message: _Message, iccid: str) -> bytes:
    """Not of the functionCallIdentifier: there are SM-DP+s that always send the same."""
    result = hashlib.sha256(msgspec.json.encode(message.result_data)).hexdigest()
    parts = (iccid, message.point_id, message.notification_point_status.status, message.reported_at, result)
    return hashlib.sha256(msgspec.json.encode(parts)).digest()
