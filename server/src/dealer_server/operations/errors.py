"""What an operator is told when a command cannot be carried out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

MAX_REASON_LENGTH = 500  # characters


class OperatorError(Exception):
    """The command cannot be carried out, and nothing was changed. The message is one line, shown to the operator.
    `field`: what was entered wrong, by the name that forms give it; "" where no field is to blame."""

    def __init__(self, message: str, field: str = ""):
        super().__init__(message)
        self.field = field


class FieldFaults(OperatorError):
    """Several fields were entered wrong. `faults`: what of each, by the name that forms give it."""

    def __init__(self, faults: Mapping[str, str]):
        super().__init__("; ".join(faults.values()), next(iter(faults), ""))
        self.faults = dict(faults)


@contextmanager
def renamed(**fields: str) -> Iterator[None]:
    """Errors of these fields name them as a form does that has other names for them."""
    try:
        yield
    except OperatorError as why:
        why.field = fields.get(why.field, why.field)
        if isinstance(why, FieldFaults):
            why.faults = {fields.get(name, name): text for name, text in why.faults.items()}
        raise


def require_reason(reason: str, message: str = "") -> None:
    """Checks a reason for the audit log. `message` is the error for an empty one; without it a reason is optional.
    Raises OperatorError."""
    if message and not reason.strip():
        raise OperatorError(message, "reason")
    if len(reason) > MAX_REASON_LENGTH:
        raise OperatorError(
            f"a reason has at most {MAX_REASON_LENGTH} characters; this one has {len(reason):,}", "reason"
        )
