"""Which profile does a call name? By exactly one of profileId and iccid."""

from dealer_server.rules import refusal
from dealer_server.rules.orders import identity


def profile_key(profile_id: int | str | None, iccid: str | None) -> tuple[int | None, str | None]:
    """The profileId or the ICCID, the other None. Raises 000105, 000111, 310404."""
    if profile_id is not None and iccid is not None:
        raise refusal.ParameterNotAccepted("profileId and iccid exclude each other; send exactly one of them")
    if profile_id is None and iccid is None:
        raise refusal.ParameterMissing("profileId is required; accepted: exactly one of profileId and iccid")
    number = None if profile_id is None else identity.profile_id(profile_id)
    if profile_id is not None and number is None:
        raise refusal.ProfileNotFound
    return number, iccid
