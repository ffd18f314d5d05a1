"""`esim-dealer usage | advance`: what is used of an eSIM, and, in the test environment, its life."""

import argparse
from typing import Any

from esim_dealer.terminal import Session, volume


def usage(session: Session, options: argparse.Namespace) -> None:
    found = session.dealer.usage(**_named(options.profile), refresh=options.refresh)
    session.show(found)
    if not session.as_json:
        print(f"used {volume(found.data_usage_bytes)} of {volume(found.data_total_bytes)}")


def advance(session: Session, options: argparse.Namespace) -> None:
    profile = session.dealer.advance(options.step, **_named(options.profile), data_usage_bytes=options.bytes)
    if session.as_json:
        session.show(profile)
        return
    words = (profile.lifecycle_status, profile.smdp_status, profile.esim_status, profile.plan_use_status)
    print(f"{profile.iccid}  {'  '.join(str(word or '-') for word in words)}  used {volume(profile.data_usage_bytes)}")


def _named(text: str) -> dict[str, Any]:
    """An iccid is longer than any profileId."""
    return {"iccid": text} if len(text) >= 18 else {"profile_id": text}
