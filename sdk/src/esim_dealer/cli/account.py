"""`esim-dealer refund | cancel | statement | topup`: money back, and money in."""

import argparse
import itertools
import sys
import uuid
from decimal import Decimal
from typing import Any

import msgspec

from esim_dealer.order import money
from esim_dealer.terminal import Session, given
from esim_dealer.wire.calls import Refund

CANCEL = "cancel"  # in place of an amount


def refund(session: Session, options: argparse.Namespace) -> None:
    key = options.refund_transaction_id or f"cli-{uuid.uuid4()}"
    print(f"refunding, --refund-transaction-id {key}", file=sys.stderr)
    done = session.dealer.refund(
        options.order_no, items=_items(options), refund_transaction_id=key, remark=options.remark
    )
    if options.wait is not None and done.status == "REFUNDING":
        session.dealer.wait_for_refund(options.order_no, timeout=options.wait)
        done = session.dealer.refund(options.order_no, items=_items(options), refund_transaction_id=key)
    _show_refund(session, done)


def _items(options: argparse.Namespace) -> dict[str, list[int | str] | None] | None:
    """What is named: profiles by iccid or profileId within their item, whole items, or (None) the whole order."""
    if options.item is None:
        if options.profile:
            raise ValueError("--profile needs the --item it belongs to")
        return None
    named: list[int | str] = [int(one) if len(one) < 18 else one for one in options.profile or ()]
    return {options.item: named or None}


def _show_refund(session: Session, done: Refund) -> None:
    if session.as_json:
        session.show(done)
        return
    what = "credited" if done.status == "REFUNDED" else done.status.lower()
    print(f"{done.refund_no}  {done.refund_amount} {done.currency} {what}  ({done.total_refund_amount} in all)")
    for item in done.items:
        names = ", ".join(done_names(item.iccids, item.profile_ids))
        print(f"  item {item.item_no}: {item.refund_status}  {names}")


def done_names(iccids: tuple[str, ...], profile_ids: tuple[int, ...]) -> list[str]:
    """ICCIDs where there are some, else the profileIds."""
    return list(iccids) or [str(one) for one in profile_ids]


def cancel(session: Session, options: argparse.Namespace) -> None:
    named: Any = {"iccid": options.profile} if len(options.profile) >= 18 else {"profile_id": options.profile}
    session.show(session.dealer.cancel(**named))


def statement(session: Session, options: argparse.Namespace) -> None:
    filters: Any = given(entry_type=options.type)
    found = session.dealer.iter_statement(page_size=min(options.limit, 500), **filters)
    session.table(
        ("ENTRY", "TIME", "TYPE", "AMOUNT", "BALANCE", "", "OF"),
        itertools.islice(found, options.limit),
        lambda entry: (
            entry.entry_no,
            entry.create_time,
            entry.entry_type,
            entry.amount,
            entry.balance_after,
            entry.currency,
            entry.order_no or entry.topup_no or msgspec.UNSET,
        ),
    )


def amount_or_cancel(text: str) -> Decimal | str:
    """What `topup` takes first."""
    return text if text == CANCEL else money(text)


def topup(session: Session, options: argparse.Namespace) -> None:
    if options.topup_no is not None:
        session.show(session.dealer.query_topup(options.topup_no))
        return
    if options.amount == CANCEL:
        session.show(session.dealer.cancel_topup(options.cancelled, options.transaction_id))
        return
    if options.amount is None or options.cancelled is not None:
        raise ValueError("topup takes an amount, --query TOPUP_NO, or cancel TOPUP_NO")
    key = options.transaction_id or f"cli-{uuid.uuid4()}"
    print(f"asking for {options.amount}, --transaction-id {key}", file=sys.stderr)
    session.show(
        session.dealer.topup(
            key, options.amount, pay_method=options.method, pay_reference=options.reference, remark=options.remark
        )
    )
