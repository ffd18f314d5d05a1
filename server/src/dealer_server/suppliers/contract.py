"""What does a supplier of eSIMs do for us, and what may it answer?

There are two kinds. A **Builtin** supplier (`simulated`, `stock`) runs in this process: it answers at once and keeps
nothing. A **Remote** supplier is called over a network, and each call may be lost: what it is asked for is written down
before (a Purchase), and no transaction is open meanwhile. Both are asked for one unit at a time, and may be asked
again with the same unit_key: after a crash, a lost answer, or because they answered Pending. They must then give the
same eSIM and never a second one.

**Only Rejected means that surely nothing was allocated.** An answer that is understood neither as a success nor as a
failure is Unknown: a timeout, a reset, half an answer, a 500. A unit with an unknown outcome is neither refunded nor
bought elsewhere; the same supplier is asked again with the same key. An exception counts as Unknown.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from dealer_server.rules.lifecycle.lifecycle import LifecycleTerms
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders.model import AppliedPlan
from dealer_server.rules.refunds.refund import Way
from esim_dealer.wire.vocabulary import PlanMode


class RechargedEsim(msgspec.Struct, frozen=True):
    """The eSIM that a unit recharges, as its supplier knows it. What stands below iccid is known of eSIMs bought from a
    Remote."""

    profile_id: int
    iccid: str
    unit_key: str = ""
    sku: str = ""
    supplier_ref: str | None = None
    unit_ref: str | None = None


class Unit(msgspec.Struct, frozen=True):
    """One eSIM to be made: unit `position` (from 1) of the `quantity` on an order line; or a plan to be added to the
    eSIM `recharges`."""

    unit_key: str
    profile_id: int
    package_code: str
    position: int
    quantity: int
    period_num: int
    data_bytes: int | None  # for the whole period; None: unlimited
    paid_at: datetime
    plan_seconds: int | None = None
    remark: str | None = None  # the order's, as its dealer gave it
    recharges: RechargedEsim | None = None


class Done(msgspec.Struct, frozen=True, tag="DONE"):
    """The eSIM exists. The statuses are the supplier's raw words; None: it reports none.

    supplier_ref, unit_ref: the supplier's names of the order and the eSIM. Dealers never see them.
    """

    iccid: str
    activation_code: str
    esim_status: str | None = "GOT_RESOURCE"
    smdp_status: str | None = "RELEASED"
    supplier_ref: str | None = None
    unit_ref: str | None = None


class Applied(msgspec.Struct, frozen=True, tag="APPLIED"):
    """The eSIM is recharged. mode: ADD, one volume and one end with what it had; QUEUE, after that. ends_at: when it
    ends now, where the supplier says so; where it does not and reports none later, the period is added. queued_begun:
    how many of its queued plans had begun when this one was added, by a supplier who knows."""

    mode: PlanMode = "ADD"
    ends_at: datetime | None = None
    supplier_ref: str | None = None
    unit_ref: str | None = None
    queued_begun: int | None = None


class Pending(msgspec.Struct, frozen=True):
    """The supplier is working on it: ask again after a while; 0 goes on at once with the next `step`.

    What is given here is stored and stands in the next Purchase; None keeps what was known.
    """

    poll_after_seconds: float
    step: str | None = None
    supplier_ref: str | None = None
    unit_ref: str | None = None


RejectedCode = Literal[
    "OUT_OF_STOCK", "CONFIG", "BAD_REQUEST", "CONFLICT", "INSUFFICIENT_FUNDS", "NOT_ALLOWED", "TEMPORARY"
]


class Rejected(msgspec.Struct, frozen=True, tag="REJECTED"):
    """Surely nothing was allocated. TEMPORARY: worth asking again; every other code is final at this supplier.

    message: for the operator; it holds no secret.
    whole: with CONFIG, everything would be refused so (a certificate, credentials), not this package alone.
    asks: with CONFIG, the price that it asks for the unit now, in ten-thousandths of the purchase's cost_currency.
    written_off: an eSIM may have been bought, and may cost money, but nobody can have it: it is burnt, or its code is
    known to nobody.
    supplier_ref: the supplier's order that came to nothing, so that the next one gets a key of its own.
    unasked: the supplier was not called at all.
    """

    code: RejectedCode
    retry_elsewhere: bool
    message: str
    whole: bool = False
    asks: int | None = None
    written_off: bool = False
    supplier_ref: str | None = None
    unasked: bool = False


class Unknown(msgspec.Struct, frozen=True):
    """Nobody knows whether an eSIM was allocated. `reason` is for the operator and holds no secret."""

    reason: str


class FromStock(msgspec.Struct, frozen=True):
    """The eSIM lies in our own stock: it is taken there in the transaction that writes it onto the order."""


Outcome = Done | Applied | Pending | Rejected | Unknown | FromStock


class VoidUnit(msgspec.Struct, frozen=True):
    """An eSIM to be voided, for a refund or because its dealer cancelled it.

    asked_before: it may have been asked for already, by a process that died before it wrote down the answer. What
    stands below is known of eSIMs bought from a Remote.
    """

    profile_id: int
    package_code: str
    iccid: str
    for_refund: bool
    asked_at: datetime
    asked_before: bool = False
    unit_key: str = ""
    sku: str = ""
    matching_id: str | None = None
    supplier_ref: str | None = None
    unit_ref: str | None = None


class VoidDone(msgspec.Struct, frozen=True):
    """The eSIM is void, also where it was before."""


class NotVoided(msgspec.Struct, frozen=True):
    """The supplier will not void it: surely it stays what it is. `message` is for the operator and holds no secret."""

    message: str


VoidOutcome = VoidDone | NotVoided | Pending | Unknown


class SuspensionDone(msgspec.Struct, frozen=True):
    """The eSIM is as was asked, also where it was so before."""


class SuspensionRefused(msgspec.Struct, frozen=True):
    """Surely it stays what it is. `message` is for the operator and holds no secret."""

    message: str


SuspensionOutcome = SuspensionDone | SuspensionRefused | Pending | Unknown


class Sms(msgspec.Struct, frozen=True):
    """A text for the device in which an eSIM is installed. `sms_key`: the same whenever this one is asked for.
    asked_before: an earlier call may have sent it; so only where `Caps.sms_repeatable`."""

    sms_key: str
    iccid: str
    message: str
    unit_ref: str | None = None
    asked_before: bool = False

    def __repr__(self) -> str:
        return f"Sms(sms_key={self.sms_key!r})"  # the text stays out of logs


class SmsSent(msgspec.Struct, frozen=True):
    """The supplier has sent it."""


class SmsFailed(msgspec.Struct, frozen=True):
    """It is not tried again. `detail` is for the operator and holds no word of the text, which suppliers may repeat in
    their own. maybe_sent: nobody knows whether it was sent; else surely not."""

    detail: str
    maybe_sent: bool = False


class SmsWaits(msgspec.Struct, frozen=True):
    """Not sent so far: ask again after a while. maybe_sent: the supplier has taken it, so that it may send it yet; else
    this call surely did nothing."""

    seconds: float
    maybe_sent: bool = False


SmsOutcome = SmsSent | SmsFailed | SmsWaits | Unknown


class Bought(msgspec.Struct, frozen=True):
    """An eSIM in a dealer's hands: what its supplier is asked about. delivered_at: when it got its codes. data_bytes:
    the volume of the plans in use, None: unlimited. plans: as in Profile."""

    profile_id: int
    unit_key: str
    sku: str
    iccid: str
    supplier_ref: str | None = None
    unit_ref: str | None = None
    package_code: str = ""
    delivered_at: datetime | None = None
    data_bytes: int | None = None
    cancelled: bool = False
    plans: tuple[AppliedPlan, ...] = ()


class Purchase(msgspec.Struct, frozen=True):
    """A unit at a Remote: what was asked and what is known. Stored before each call: a crash loses nothing.

    `step` is where the supplier's own sequence of calls stands: "" until a Pending says otherwise. `sku` is what the
    supplier calls the package, `cost` what it asks for it in ten-thousandths of `cost_currency` (None: not agreed).
    `unknown_since`: when it was seen that a call has no answer; not before that call was made.
    """

    unit: Unit
    sku: str
    step: str = ""
    planned_iccid: str | None = None
    planned_matching_id: str | None = None
    supplier_ref: str | None = None
    unit_ref: str | None = None
    cost: int | None = None
    cost_currency: str | None = None
    unknown_since: datetime | None = None


class ProfileReport(msgspec.Struct, frozen=True):
    """A report on one eSIM. It is named by at least one of the three: unit_key counts first, then supplier_ref, then
    the ICCID, which its supplier may have sold before."""

    report: Report
    iccid: str | None = None
    supplier_ref: str | None = None
    unit_key: str | None = None


class Unasked(msgspec.Struct, frozen=True):
    """An eSIM that there was no time to ask about: it is due again at once."""

    profile_id: int


class Event(msgspec.Struct, frozen=True):
    """What a supplier's message means.

    key: the same for a message that comes twice. kind: for the log. reports: are applied, as the message is proven or
    harmless. about: supplier_refs, unit_keys or unit_refs, or else ICCIDs, about which the supplier is to be asked now;
    a message that is not signed is only a reason to ask.
    """

    key: bytes
    kind: str
    reports: tuple[ProfileReport, ...] = ()
    about: tuple[str, ...] = ()


class BadEvent(Exception):
    """Not a message of this supplier, or one that does not prove itself. The text holds no secret."""


class Health(msgspec.Struct, frozen=True):
    """Whether a supplier works. balance in ten-thousandths of `currency`; stock by sku. None: it does not say."""

    up: bool
    detail: str
    balance: int | None = None
    currency: str | None = None
    stock: Mapping[str, int] | None = None


class Caps(msgspec.Struct, frozen=True):
    """What a supplier can do, and how it is asked.

    parallel: units asked for at a time, per process. How many calls a second a Remote makes is its own affair
    (suppliers/rate_limiter.py).
    polled: `refresh` gives the state and usage of eSIMs.
    plans_ids: ICCID (from a loaded range) and MatchingID are ours and stand in the Purchase before the first call.
    own_plan_end: it reports when plans end and eSIMs expire, so time alone ends nothing here.
    event_status: the HTTP status that its messages are answered with.
    reuses_iccids: it may sell an ICCID again.
    lifecycle: how its eSIMs are followed after delivery; None: not at all.
    recharges: units may name an eSIM to recharge; they are answered with Applied.
    suspend: its eSIMs can be suspended; a Builtin needs to do nothing for that.
    sms: it sends SMS. sms_repeatable: once, however often it is asked with the same sms_key.
    """

    parallel: int = 8
    polled: bool = False
    plans_ids: bool = False
    own_plan_end: bool = False
    event_status: int = 204
    reuses_iccids: bool = True
    lifecycle: LifecycleTerms | None = LifecycleTerms()
    recharges: bool = False
    suspend: bool = False
    sms: bool = False
    sms_repeatable: bool = False


class Supplier(Protocol):
    """What every supplier has. `code` is its name in packages and routes."""

    @property
    def code(self) -> str: ...

    @property
    def caps(self) -> Caps: ...

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        """Voids the eSIM, or says how far that is; asked again, it answers the same."""
        ...


class ReportSource(Protocol):
    """Where reports on a supplier's delivered eSIMs come from. polled: it is asked. timed: time alone ends a plan."""

    @property
    def code(self) -> str: ...

    @property
    def polled(self) -> bool: ...

    @property
    def timed(self) -> bool: ...

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> "Sequence[ProfileReport | Unasked]":
        """The state and usage of these eSIMs. Not called unless `polled`."""
        ...

    def next_refresh_at(self, bought: Bought, now: datetime) -> datetime | None:
        """When to ask about this eSIM again, if ever."""
        ...


class Builtin(Supplier, Protocol):
    """A supplier in this process. It needs no network, and its answer follows from the unit and the time alone. With
    `Caps.sms` an SMS is sent once it is written down."""

    @property
    def reports(self) -> ReportSource | None:
        """None: there is nobody to report on its eSIMs."""
        ...

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        """Makes the eSIM, or says how far it is. Asked again with the same unit_key, it makes no second one."""
        ...

    def way(self, package_code: str, for_refund: bool) -> Way:
        """Who decides when a profile of this package, with codes, is voided."""
        ...


class Remote(Supplier, Protocol):
    """A supplier that is called over a network. One file, one class, one row in suppliers/registry.py.

    Every method but parse_event has a deadline of its own, which ends before `CALL_SECONDS`; what it raises counts as
    Unknown. None of them writes anywhere: the caller records what they answer.
    """

    async def allocate(self, purchase: Purchase, now: datetime) -> Outcome:
        """Takes the next step of a purchase: one call. Everything that was asked before has been answered."""
        ...

    async def probe(self, purchase: Purchase, now: datetime) -> Outcome:
        """Finds out what became of a purchase whose last call got no answer that counts. Buys nothing that could be
        there already. Pending: goes on from there with `allocate`. Rejected: surely nothing is there."""
        ...

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> Sequence[ProfileReport | Unasked]:
        """The state and usage of these eSIMs; those it knows nothing of are missing. It asks about at least one, so
        that fewer are left for the next time. Not called unless `polled`."""
        ...

    async def set_suspended(self, esim: Bought, suspended: bool, now: datetime) -> SuspensionOutcome:
        """Suspends the eSIM, or lets it work again; asked again, it does no harm. Not called unless `caps.suspend`."""
        ...

    async def send_sms(self, sms: Sms, now: datetime) -> SmsOutcome:
        """Sends a text to the device of an eSIM. Not called unless `sms`."""
        ...

    def parse_event(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Event:
        """Reads a message that came in: header names in lower case. Pure. Raises BadEvent."""
        ...

    async def health(self) -> Health: ...

    async def close(self) -> None: ...


CALL_SECONDS = 45.0
