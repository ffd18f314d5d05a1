"""`esim-dealer health | balance | statement | topup`: the account and its wallet."""

import argparse
import itertools
import uuid
from decimal import Decimal
from typing import get_args

import msgspec

from esim_dealer.cli.arguments import Commands, add_limit, amount, filters, page_size
from esim_dealer.cli.session import Session
from esim_dealer.wire.vocabulary import EntryType, PayMethod

CANCEL = "cancel"  # in place of an amount


def add_commands(commands: Commands) -> None:
    commands.add("health", health, "check signing and connectivity")
    commands.add("balance", balance, "show the wallet")

    command = commands.add("statement", statement, "list the entries of the wallet, newest first")
    command.add_argument("--type", choices=get_args(EntryType))
    add_limit(command)

    command = commands.add("topup", topup, "request a top-up of the wallet, show one, or cancel one")
    command.add_argument("amount", nargs="?", type=amount_or_cancel, metavar="AMOUNT|cancel")
    command.add_argument("cancelled", nargs="?", metavar="TOPUP_NO", help="with cancel: the request to cancel")
    command.add_argument("--query", dest="topup_no", metavar="TOPUP_NO", help="show this request instead")
    command.add_argument("--transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)")
    command.add_argument("--method", choices=get_args(PayMethod))
    command.add_argument("--reference", metavar="TEXT", help="the reference of the payment")
    command.add_argument("--remark")


def health(session: Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.health())


def balance(session: Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.balance())


def statement(session: Session, options: argparse.Namespace) -> None:
    entries = session.dealer.iter_statement(page_size(options.limit), **filters(entry_type=options.type))
    session.table(
        ("ENTRY", "TIME", "TYPE", "AMOUNT", "BALANCE", "", "OF"),
        itertools.islice(entries, options.limit),
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


def topup(session: Session, options: argparse.Namespace) -> None:
    if options.topup_no == "" or (options.amount == CANCEL and not (options.cancelled or options.transaction_id)):
        raise ValueError("give the TOPUP_NO")
    if options.topup_no is not None:
        session.show(session.dealer.query_topup(options.topup_no))
        return
    if options.amount == CANCEL:
        session.show(session.dealer.cancel_topup(options.cancelled, options.transaction_id))
        return
    if options.amount is None or options.cancelled is not None:
        raise ValueError("topup takes an amount, --query TOPUP_NO, or cancel TOPUP_NO")
    transaction_id = options.transaction_id or f"cli-{uuid.uuid4()}"
    session.note(f"requesting {options.amount}, --transaction-id {transaction_id}", transactionId=transaction_id)
    requested = session.dealer.topup(
        transaction_id,
        options.amount,
        pay_method=options.method,
        pay_reference=options.reference,
        remark=options.remark,
    )
    session.show(requested)


def amount_or_cancel(text: str) -> Decimal | str:
    """The first argument of `topup`."""
    return text if text == CANCEL else amount(text)
