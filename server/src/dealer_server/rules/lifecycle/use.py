"""How far is an eSIM, for who sold it? One word of what its states and its usage say together."""

from typing import Literal, Protocol, get_args

Use = Literal["PENDING", "NOT_INSTALLED", "INSTALLED", "IN_USE", "NEARLY_USED", "USED_UP", "ENDED"]
USES: tuple[Use, ...] = get_args(Use)
NEARLY_PERCENT = 80
"""From here on its data is nearly used."""


class Esim(Protocol):
    """What of an eSIM its use is made of."""

    @property
    def lifecycle_status(self) -> str: ...
    @property
    def smdp_status(self) -> str | None: ...
    @property
    def plan_use_status(self) -> str: ...
    @property
    def data_total_bytes(self) -> int | None: ...
    @property
    def data_usage_bytes(self) -> int: ...


def use(esim: Esim) -> Use:
    """Of one that is neither void nor failed. INSTALLED: a phone has it, and its plan has not begun."""
    if esim.lifecycle_status == "PENDING":
        return "PENDING"
    if esim.plan_use_status == "NOT_STARTED":
        return "INSTALLED" if is_installed(esim) else "NOT_INSTALLED"
    if used_percent(esim) >= 100:
        return "USED_UP"
    if esim.plan_use_status == "ENDED":
        return "ENDED"
    return "NEARLY_USED" if used_percent(esim) >= NEARLY_PERCENT else "IN_USE"


def is_installed(esim: Esim) -> bool:
    """A phone has it, as far as its supplier reports."""
    if esim.data_usage_bytes or esim.lifecycle_status in ("ACTIVATING", "ACTIVATED"):
        return True
    return esim.smdp_status not in (None, "RELEASED")


def used_percent(esim: Esim) -> int:
    """0 of an unlimited one."""
    return 100 * esim.data_usage_bytes // esim.data_total_bytes if esim.data_total_bytes else 0
