"""The test environment's network: makes eSIMs out of nothing, and plays the scripted packages (specification 11).

It keeps no state. Its answers follow from the unit, the time and a secret seed alone, so a unit asked for again after a
crash gets the same eSIM.
"""

import base64
import hmac
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from dealer_server.rules.esim import iccid
from dealer_server.rules.lifecycle.lifecycle import LifecycleTerms
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import identity
from dealer_server.rules.refunds.refund import Way
from dealer_server.suppliers.contract import (
    Applied,
    Bought,
    Caps,
    Done,
    NotVoided,
    Outcome,
    Pending,
    ProfileReport,
    Rejected,
    Unit,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)

CODE = "simulated"
SCRIPTED_PACKAGES = ("TEST-LIFECYCLE",)  # their eSIMs change by themselves
HOST = "rsp.sandbox.example"
ICCID_PREFIX = "89000"  # 89 is telecom, 000 no country: no real eSIM begins so
ICCID_NUMBERS = 10**14
PROFILES_PER_SECOND = 100_000


def _first_half_at_once(unit: Unit) -> float:
    return 0 if 2 * unit.position <= unit.quantity + 1 else 10


# Seconds from payment to delivery; every other package is delivered at once.
_DELAYS: dict[str, Callable[[Unit], float]] = {
    "TEST-DELAY": lambda unit: 5,
    "TEST-PARTIAL": _first_half_at_once,
    "TEST-TOPUP-DELAY": lambda unit: 5,
}


QUEUED = ("TEST-TOPUP-QUEUE", "TEST-TOPUP-ASYNC")  # recharges that begin when the plan before them ends

_WAYS: dict[tuple[str, bool], Way] = {
    ("TEST-ASYNC", False): "SUPPLIER",
    ("TEST-ASYNC", True): "SUPPLIER",
    ("TEST-TOPUP-ASYNC", True): "SUPPLIER",
    ("TEST-REJECT", True): "SUPPLIER",
    ("TEST-REVIEW", True): "REVIEW",
}
VOID_SECONDS = 3.0

# A script: seconds from the delivery, the states that are reached by then, and the percentage of the volume used.
_SCRIPT: tuple[tuple[float, str | None, str | None, int], ...] = (
    (1, "DOWNLOAD", None, 0),
    (2, "INSTALLATION", None, 0),
    (3, "ENABLED", None, 0),
    (4, None, "IN_USE", 0),
    (5, None, None, 25),
    (6, None, None, 50),
    (7, None, None, 80),
    (8, None, None, 100),
    (9, None, "USED_UP", 100),
)


_SCRIPT_RECHARGED = tuple((seconds - 3, smdp, esim, percent) for seconds, smdp, esim, percent in _SCRIPT if seconds > 3)


def refusal(package_code: str) -> Rejected | None:
    """The answer to whoever asks for an eSIM of a package that fails."""
    if package_code in ("TEST-FAIL", "TEST-TOPUP-FAIL"):
        return Rejected("NOT_ALLOWED", False, f"{package_code} fails for good")
    return None


class Simulated:
    """`speed` divides the delays, so that a demonstration need not wait. Whoever knows the seed knows every code."""

    code = CODE
    CAPS = Caps(parallel=1, polled=True, reuses_iccids=False, suspend=True, recharges=True, sms=True)  # it never waits
    polled = timed = True

    def __init__(self, seed: bytes, speed: float = 1.0):
        assert len(seed) >= 16 and speed > 0
        terms = LifecycleTerms(plan_speed=speed, first_refresh_seconds=None, scripted_packages=SCRIPTED_PACKAGES)
        self.caps = msgspec.structs.replace(self.CAPS, lifecycle=terms)
        self._seed = seed
        self._speed = speed
        spread = hmac.digest(seed, b"iccid", "sha256")
        # Ends in 1, hence coprime with a power of ten: multiplying permutes the numbers.
        self._factor = int.from_bytes(spread[:16], "big") % (ICCID_NUMBERS // 10) * 10 + 1
        self._offset = int.from_bytes(spread[16:], "big") % ICCID_NUMBERS

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        if refused := refusal(unit.package_code):
            return refused
        delay = _DELAYS.get(unit.package_code)
        if delay is not None:
            left = delay(unit) / self._speed - (now - unit.paid_at).total_seconds()
            if left > 0:
                return Pending(left)
        if unit.recharges is not None:
            return Applied("QUEUE" if unit.package_code in QUEUED else "ADD")
        return Done(self._iccid(unit.profile_id), f"LPA:1${HOST}${self._matching_id(unit.unit_key)}")

    def way(self, package_code: str, for_refund: bool) -> Way:
        return _WAYS.get((package_code, for_refund), "AT_ONCE")

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        if self.way(unit.package_code, unit.for_refund) != "SUPPLIER":
            return VoidDone()
        left = VOID_SECONDS / self._speed - (now - unit.asked_at).total_seconds()
        if left > 0:
            return Pending(left)
        if unit.package_code == "TEST-REJECT":
            return NotVoided("TEST-REJECT rejects every refund")
        return VoidDone()

    @property
    def reports(self) -> "Simulated":
        return self

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> list[ProfileReport]:
        """All that their scripts hold until now, or that there is nothing new."""
        return [
            ProfileReport(report, iccid=esim.iccid)
            for esim in bought
            for report in [report for report in self._script(esim) if report.at <= now] or [Report(now)]
        ]

    def next_refresh_at(self, bought: Bought, now: datetime) -> datetime | None:
        """When this eSIM's script goes on."""
        return next((report.at for report in self._script(bought) if report.at > now), None)

    def _script(self, esim: Bought) -> list[Report]:
        if esim.package_code not in SCRIPTED_PACKAGES or esim.cancelled or esim.delivered_at is None:
            return []
        begun, script, before = esim.delivered_at, _SCRIPT, 0
        volume = (esim.plans[0].data_bytes if esim.plans else esim.data_bytes) or 0
        for plan in esim.plans[1:]:
            if plan.begun_at is not None:
                before = plan.used_before if plan.mode == "QUEUE" else before + volume
                begun, script, volume = plan.begun_at, _SCRIPT_RECHARGED, plan.data_bytes or 0
        return [
            Report(
                begun + timedelta(seconds=seconds / self._speed),
                smdp_status=smdp_status,
                esim_status=esim_status,
                data_usage_bytes=before - (-volume * percent // 100),
            )
            for seconds, smdp_status, esim_status, percent in script
        ]

    def _iccid(self, profile_id: int) -> str:
        """20 digits that no other profile of this deployment has until 2051.

        A profileId is seconds x 10^6 and a count that starts anew each second; at fewer than 100 000 profiles a second
        the count needs five digits, and nine are left for the seconds. The seed spreads the numbers, so that they do
        not tell how much is sold, nor meet those of another deployment.
        """
        seconds, count = divmod(profile_id, identity.SEQUENCE)
        number = (seconds * PROFILES_PER_SECOND + count) * self._factor + self._offset
        digits = f"{ICCID_PREFIX}{number % ICCID_NUMBERS:014}"
        return digits + iccid.luhn_digit(digits)

    def _matching_id(self, unit_key: str) -> str:
        """26 letters and digits nobody can guess."""
        return base64.b32encode(hmac.digest(self._seed, unit_key.encode(), "sha256")[:16]).decode().rstrip("=")
