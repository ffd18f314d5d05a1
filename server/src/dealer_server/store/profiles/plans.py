"""The plans of an eSIM as they are stored: a JSON array, NULL while it was never recharged."""

import msgspec

from dealer_server.rules.orders.model import AppliedPlan

_decoder = msgspec.json.Decoder(tuple[AppliedPlan, ...])
_encoder = msgspec.json.Encoder()


def read(stored: str | None) -> tuple[AppliedPlan, ...]:
    return () if stored is None else _decoder.decode(stored)


def written(plans: tuple[AppliedPlan, ...]) -> str | None:
    return _encoder.encode(plans).decode() if plans else None
