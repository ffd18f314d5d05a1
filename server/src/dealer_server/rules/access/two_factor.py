"""Who must have one-time codes to use the console?"""

from typing import Literal

TwoFactor = Literal["optional", "operators", "everybody"]


def required(setting: TwoFactor, tenant_id: int | None) -> bool:
    """`tenant_id`: the user's dealer, None for operators."""
    return setting == "everybody" or (setting == "operators" and tenant_id is None)
