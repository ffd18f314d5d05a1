"""What keeps a dealer from buying, or from hearing of it?"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.rules.incidents import receiver
from dealer_server.rules.incidents.incident import Incident, Level, many, rank
from dealer_server.rules.incidents.receiver import Receiver
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity

FAILED_COUNTED = 100
ENDING_COUNTED = UNMAILED_COUNTED = 10_000
"""As the tabs of the list count (console/shared/params.py)."""
FEW_DAYS = 7
"""A balance that lasts no longer is told of."""


class Dealer(NamedTuple):
    """`available`: balance and credit limit, in ten-thousandths. `cheapest`: what its cheapest order of late came to,
    None where it has bought nothing. `credentials`: AppKeys that open calls."""

    tenant_id: int
    name: str
    disabled: bool
    frozen: bool
    currency: str
    available: int
    threshold: int
    cheapest: int | None
    credentials: int
    receiver: Receiver | None


class Answered(NamedTuple):
    """A refund that was answered; its amount in ten-thousandths."""

    order_id: int
    amount: int
    rejected: bool
    settled_at: datetime


class Ending(NamedTuple):
    """How many plans in use of the dealer's customers end. `rechargeable`: how many of these can be recharged, None
    where that is not counted."""

    today: int = 0
    tomorrow: int = 0
    rechargeable: int | None = None

    @property
    def plans(self) -> int:
        return self.today + self.tomorrow


class Own(NamedTuple):
    """What only the dealer itself is told: how many of its orders failed and are not refunded, and which failed of
    late and are; refunds that were answered of late, how many of its top-ups wait for review and their sum, and how
    many calls were refused of late. `unmailed`: how many of its eSIMs wait to be mailed to a buyer. `days_left`: of
    its balance. `secrets`: AppKeys whose previous secret ends, and when."""

    failed: int = 0
    returned: Sequence[int] = ()
    refunds: Sequence[Answered] = ()
    topups: int = 0
    sum_of_topups: int = 0
    refused: int = 0
    unmailed: int = 0
    days_left: int | None = None
    ending: Ending = Ending()
    secrets: Sequence[tuple[str, datetime]] = ()


def own_incidents(dealer: Dealer, own: Own, now: datetime) -> list[Incident]:
    """For the dealer itself; rejections before other answers."""
    failed, refunds = own.failed, own.refunds
    found = [*_closed(dealer, own=True), *(list(_money(dealer, own=True)) or _lasts(own.days_left))]
    if failed:
        several = f"{many(failed, 'order', FAILED_COUNTED)} failed and {'is' if failed == 1 else 'are'} not refunded"
        found.append(Incident("FAILED", "", "fault", several))
    found += _returned(own.returned)
    found += _receiver(dealer, now, own=True)
    rejected = [refund for refund in refunds if refund.rejected]
    credited = [refund for refund in refunds if not refund.rejected]
    found += _answers(rejected, "was rejected", "were rejected", "degraded", dealer.currency)
    found += _answers(credited, "was credited", "were credited", "note", dealer.currency)
    found += [Incident("SECRET", key, "waiting", f"The previous AppSecret of {key} ends", at=at)
              for key, at in own.secrets]  # fmt: skip
    if own.unmailed:
        are = "is" if own.unmailed == 1 else "are"
        text = f"{many(own.unmailed, 'eSIM', UNMAILED_COUNTED)} {are} not mailed yet"
        found.append(Incident("UNMAILED", "", "waiting", text, detail="add an email, or send the link yourself"))
    found += _ending(own.ending)
    if own.topups:
        amount = money.shown(own.sum_of_topups, dealer.currency)
        text = f"{many(own.topups, 'top-up')} of {amount} {'waits' if own.topups == 1 else 'wait'} for review"
        found.append(Incident("TOPUPS", "", "note", text))
    if own.refused:
        text = f"{many(own.refused, 'API call')} {'was' if own.refused == 1 else 'were'} refused in the last 24 hours"
        found.append(Incident("CALLS", "", "note", text))
    return _worst_first(found)


def _returned(orders: Sequence[int]) -> Iterator[Incident]:
    """Whose buyers have nothing, although the money is back."""
    if orders:
        text = f"{many(len(orders), 'order', FAILED_COUNTED)} failed in the last 24 hours"
        subject = "" if orders[1:] else identity.order_no(orders[0])
        yield Incident("RETURNED", subject, "fault", text, detail="you have the money back, the buyer has no eSIM")


def is_low(days: int | None) -> bool:
    """A balance that lasts so long is told of, and marked on every page; None: that is not known."""
    return days is not None and days <= FEW_DAYS


def _lasts(days: int | None) -> list[Incident]:
    if days is None or not is_low(days):
        return []
    text = f"Your balance lasts about {many(days, 'day')}" if days else "Your balance lasts less than a day"
    return [Incident("BALANCE", "", "degraded", text, detail="as fast as you spent it in the last 7 days")]


def _worst_first(found: list[Incident]) -> list[Incident]:
    """Of one level as they were found."""
    return sorted(found, key=lambda one: rank(one.level))


def _ending(ending: Ending) -> Iterator[Incident]:
    if plans := ending.today or ending.tomorrow:
        text = (
            f"{many(plans, 'plan', ENDING_COUNTED)} end{'s' * (plans == 1)} {'today' if ending.today else 'tomorrow'}"
        )
        if ending.today and ending.tomorrow:
            text += f", {many(ending.tomorrow, 'plan', ENDING_COUNTED)} tomorrow"
        yield Incident(
            "PLANS",
            "",
            "degraded" if ending.today else "waiting",
            text,
            detail=before_the_end(ending.plans, ending.rechargeable),
        )


def before_the_end(plans: int, rechargeable: int | None) -> str:
    """What keeps the customers of so many plans that end online. `rechargeable`: None where that is not counted."""
    if rechargeable is None:
        return "recharge where the package allows it, or sell another eSIM"
    if rechargeable == 0:
        return f"{'none can' if plans > 1 else 'it cannot'} be recharged, sell another eSIM"
    if rechargeable == plans:
        return "all can be recharged" if plans > 1 else "it can be recharged"
    return f"{rechargeable} of {plans} can be recharged, for the others sell another eSIM"


def _answers(refunds: Sequence[Answered], one: str, several: str, level: Level, currency: str) -> Iterator[Incident]:
    if not refunds:
        return
    amount = money.shown(sum(refund.amount for refund in refunds), currency)
    if refunds[1:]:
        yield Incident("REFUNDS", "", level, f"{len(refunds)} refunds {several}, {amount} in all")
    else:
        subject = identity.order_no(refunds[0].order_id)
        yield Incident("REFUNDS", subject, level, f"A refund of {amount} {one}", at=refunds[0].settled_at)


def incidents(dealer: Dealer, now: datetime, *, own: bool = False) -> list[Incident]:
    """The worst first: what stops every call, then what stops purchases, then what warns. `own`: the dealer itself
    reads them."""
    return _worst_first([*_closed(dealer, own), *_money(dealer, own), *_receiver(dealer, now, own)])


def _closed(dealer: Dealer, own: bool) -> Iterator[Incident]:
    subject = str(dealer.tenant_id)
    if dealer.disabled:
        text = "Your account is suspended" if own else f"{dealer.name} is suspended"
        yield Incident("SUSPENDED", subject, "fault", text, detail="every call is refused")
    elif not dealer.credentials:
        text = "You have no AppKey that works" if own else f"{dealer.name} has no AppKey that works"
        yield Incident("CREDENTIALS", subject, "fault", text, detail="every call is refused")


def _money(dealer: Dealer, own: bool) -> Iterator[Incident]:
    subject, whose = str(dealer.tenant_id), "Your wallet" if own else "The wallet"
    left = money.shown(dealer.available, dealer.currency)
    if dealer.frozen:
        yield Incident("FROZEN", subject, "fault", f"{whose} is frozen", detail="every new order is refused")
    if dealer.cheapest is not None and dealer.available < dealer.cheapest:
        cheapest = money.shown(dealer.cheapest, dealer.currency)
        text = f"{whose} has {left}, too little for the cheapest order of late"
        yield Incident("BALANCE", subject, "fault", text, detail=f"that one came to {cheapest}")
    elif dealer.available < dealer.threshold:
        threshold = money.shown(dealer.threshold, dealer.currency)
        text = f"{whose} has {left}, less than the threshold of {threshold}"
        yield Incident("BALANCE", subject, "degraded", text)


def _receiver(dealer: Dealer, now: datetime, own: bool) -> Iterator[Incident]:
    found = None if dealer.receiver is None else receiver.incident(dealer.receiver, now, own=own)
    if found is not None:
        yield found
