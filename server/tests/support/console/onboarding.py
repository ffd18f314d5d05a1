"""A new dealer by the steps of the console, as an operator's browser sends them."""

import re

import httpx2

from support.browser import Browser

NEW = "/console/dealers/new"
STEPS = ("dealer", "prices", "user", "review")
OF_STEP = {"prices": ("markup", "prices"), "user": ("address", "role")}
DEFAULTS = {"currency": "USD", "qps": "10", "role": "admin"}


async def up_to(browser: Browser, step: str, **fields: str) -> str:
    """Fills in a new dealer up to this step, whose address it is."""
    given, place = DEFAULTS | fields, NEW
    for name in STEPS[: STEPS.index(step)]:
        answer = await browser.post(place, form_of(name, given))
        assert answer.status_code == 303, answer.text
        place = answer.headers["location"]
        assert place.startswith("/console/dealers/"), place
    return place


async def onboarded(browser: Browser, **fields: str) -> httpx2.Response:
    """The answer to the last step."""
    return await browser.post(await up_to(browser, "review", **fields))


def form_of(step: str, given: dict[str, str]) -> dict[str, str]:
    others = {name for names in OF_STEP.values() for name in names}
    names = OF_STEP.get(step) or tuple(name for name in given if name not in others)
    return {name: given[name] for name in names if name in given}


def tenant_of(answer: httpx2.Response) -> int:
    found = re.fullmatch(r"/console/dealers/(\d+)/created", answer.headers["location"])
    assert found, answer.headers["location"]
    return int(found[1])
