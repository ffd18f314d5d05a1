"""On which device is the install page open, and does its link install by itself? By its User-Agent; a guess that only
orders the page: everything stands on it for every device."""

import re
from typing import Literal, NamedTuple, get_args

Platform = Literal["ios", "android", "other"]
Manufacturer = Literal["samsung", "pixel", "android"]
"""Whose menus are told of; `android`: of all others."""
MANUFACTURERS: tuple[Manufacturer, ...] = get_args(Manufacturer)
_IOS = re.compile(r"\((?:iPhone|iPad|iPod)[^)]*? OS ([0-9]{1,3})_([0-9]{1,3})")
LINKS_SINCE = (17, 4)


class Device(NamedTuple):
    """`too_old`: an iPhone whose system does not know the link yet. `manufacturer`: of an Android phone; many browsers
    do not tell it."""

    platform: Platform
    too_old: bool = False
    manufacturer: Manufacturer = "android"


def device(user_agent: str) -> Device:
    head = user_agent[:512]
    if found := _IOS.search(head):
        return Device("ios", (int(found[1]), int(found[2])) < LINKS_SINCE)
    if "iPhone" in head or "iPad" in head:
        return Device("ios")
    return Device("android", manufacturer=_manufacturer(head)) if "Android" in head else Device("other")


def _manufacturer(user_agent: str) -> Manufacturer:
    if "SamsungBrowser" in user_agent or "; SM-" in user_agent:
        return "samsung"
    return "pixel" if "; Pixel " in user_agent else "android"
