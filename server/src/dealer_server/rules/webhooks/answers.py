"""What did an endpoint answer in some hours? Sums for a chart and by answer; which answers a filter means."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, get_args

from dealer_server.rules.bars import Bar, Bars, bars
from dealer_server.rules.period import Period
from esim_dealer.wire.vocabulary import AttemptError

KINDS = ("2xx", "3xx", "4xx", "5xx")
"""Of HTTP statuses, as filters."""
NONE = "NONE"
"""As a filter: no HTTP answer came."""
_STATUS = re.compile(r"[1-5](?:xx|[0-9]{2})")


class Alike(Protocol):
    """Attempts of an hour with the same answer: http_status 0 where none came, error "" where it was accepted."""

    @property
    def hour(self) -> datetime: ...
    @property
    def http_status(self) -> int: ...
    @property
    def error(self) -> str: ...
    @property
    def attempts(self) -> int: ...


class Answer(NamedTuple):
    """Attempts of the whole period with the same answer. `filter`: the word that finds them."""

    filter: str
    accepted: bool
    attempts: int


class History(NamedTuple):
    """Of a period. `attempts`: those that were accepted are good. `answers`: the most frequent first."""

    attempts: Bars
    answers: Sequence[Answer]


def history(found: Iterable[Alike], of: Period) -> History:
    within = [one for one in found if of.start <= one.hour < of.end]
    counted = (Bar(one.hour, 0, one.attempts) if one.error else Bar(one.hour, one.attempts) for one in within)
    alike = Counter[tuple[str, bool]]()
    for one in within:
        alike[word(one.http_status, one.error), not one.error] += one.attempts
    return History(bars(counted, of), [Answer(name, good, attempts) for (name, good), attempts in alike.most_common()])


ADVICE: Mapping[str, str] = {
    "3xx": "Redirects are not followed: the callback URL should be the address that answers itself.",
    "401": "The endpoint asks for credentials of its own: it should check X-Signature instead.",
    "403": "A firewall or the endpoint refuses the call: it should let it pass and check X-Signature.",
    "404": "There is nothing at this path: the callback URL may be wrong.",
    "405": "The endpoint takes no POST at this path: the callback URL may be wrong.",
    "410": "The endpoint says that it is gone: nothing is sent until its URL is saved again.",
    "413": "The endpoint takes no body of this size: its limit should be raised.",
    "429": "The endpoint limits its calls: it should take more, or answer first and work later.",
    "4xx": "The endpoint refuses the webhook: its response says why.",
    "5xx": "An error in the endpoint: its log has the cause.",
    "TIMEOUT": "The endpoint answers too late: it should answer first and work later.",
    "CONNECT": "No connection: the server is down, or a firewall keeps it closed.",
    "DNS": "The host name is not found: check the domain, or the callback URL.",
    "TLS": "Its certificate is not valid: expired, or not for this host.",
    "RESET": "The endpoint closed the connection before it answered.",
    "PROTOCOL": "What it answered is not HTTP.",
    "ADDRESS_REFUSED": "The host name leads to an address that is not public.",
}
"""What helps against a failure, by its word or kind."""


def advice(filter: str) -> str:
    """ "" where nothing is known that helps."""
    return ADVICE.get(filter) or ADVICE.get(f"{filter[:1]}xx" if filter[:1].isdigit() else "", "")


def word(http_status: int | None, error: str | None) -> str:
    """As a filter: 500, or TIMEOUT where no answer came."""
    return str(http_status) if http_status else error or NONE


def known(answer: str) -> bool:
    """Whether this is a filter: 5xx, 500, NONE, TIMEOUT."""
    return bool(_STATUS.fullmatch(answer)) or answer == NONE or answer in get_args(AttemptError)


def matches(answer: str, http_status: int | None, error: str | None) -> bool:
    """Whether an attempt was answered so. Of a delivery without an attempt both are None."""
    if answer == NONE:
        return not http_status and error is not None
    if answer.endswith("xx"):
        return str(http_status or "").startswith(answer[0])
    return word(http_status, error) == answer
