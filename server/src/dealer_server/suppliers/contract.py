"""What does a supplier of eSIMs do for us, and what may it answer? (suppliers 3)

A supplier is asked for one unit at a time, with no transaction open, and may be asked again with the same unit_key:
after a crash, a lost answer, or because it said Pending. It must then give the same eSIM and never a second one.

**Only Rejected means "surely nothing was allocated".** Whatever is neither an answer understood as success nor one
understood as failure is Unknown: a timeout, a reset, half an answer, a 500. A unit with an unknown outcome is neither
refunded nor bought elsewhere; the same supplier is asked again with the same key. An exception counts as Unknown.
"""

from datetime import datetime
from typing import Literal, Protocol

import msgspec

from dealer_server.rules.refund import Way


class Unit(msgspec.Struct, frozen=True):
    """One eSIM to be made: unit `position` (from 1) of the `quantity` on an order line."""

    unit_key: str
    profile_id: int
    package_code: str
    position: int
    quantity: int
    period_num: int
    data_bytes: int | None  # for the whole period; None: unlimited
    paid_at: datetime


class Done(msgspec.Struct, frozen=True):
    """The eSIM exists. The statuses are the supplier's raw words, None where it reports none."""

    iccid: str
    activation_code: str
    esim_status: str | None = "GOT_RESOURCE"
    smdp_status: str | None = "RELEASED"


class Pending(msgspec.Struct, frozen=True):
    """The supplier is at it: ask again in a while."""

    poll_after_seconds: float


RejectedCode = Literal[
    "OUT_OF_STOCK", "CONFIG", "BAD_REQUEST", "CONFLICT", "INSUFFICIENT_FUNDS", "NOT_ALLOWED", "TEMPORARY"
]


class Rejected(msgspec.Struct, frozen=True):
    """Surely nothing was allocated. TEMPORARY: worth asking again; every other code is final at this supplier.

    `message` is for the operator and holds no secret.
    """

    code: RejectedCode
    retry_elsewhere: bool
    message: str


class Unknown(msgspec.Struct, frozen=True):
    """Nobody knows whether an eSIM was allocated. `reason` is for the operator and holds no secret."""

    reason: str


class FromStock(msgspec.Struct, frozen=True):
    """The eSIM lies in our own stock: it is taken there in the transaction that writes it onto the order."""


Outcome = Done | Pending | Rejected | Unknown | FromStock


class VoidUnit(msgspec.Struct, frozen=True):
    """An eSIM to be voided, for a refund or because its dealer cancelled it."""

    profile_id: int
    package_code: str
    iccid: str
    for_refund: bool
    asked_at: datetime


class VoidDone(msgspec.Struct, frozen=True):
    """The eSIM is void, also where it was before."""


class NotVoided(msgspec.Struct, frozen=True):
    """The supplier will not void it: surely it stays what it is. `message` is for the operator and holds no secret."""

    message: str


VoidOutcome = VoidDone | NotVoided | Pending | Unknown


class Supplier(Protocol):
    """Who makes eSIMs. `code` is what packages name it by; at most `parallel` calls run at a time per process."""

    @property
    def code(self) -> str: ...

    @property
    def parallel(self) -> int: ...

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        """Makes the eSIM, or says how far it is. Asked again with the same unit_key, it makes no second one."""
        ...

    def way(self, package_code: str, for_refund: bool) -> Way:
        """Who has a say when a profile of this package, with codes, is voided."""
        ...

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        """Voids the eSIM, or says how far that is; asked again, it answers the same."""
        ...
