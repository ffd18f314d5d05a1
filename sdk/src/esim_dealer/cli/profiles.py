"""`esim-dealer profiles | plans | usage | cancel | suspend | unsuspend | sms | advance`: eSIMs, their plans and usage,
messages to them, and their life in the test environment."""

import argparse
import itertools
import uuid
from typing import get_args

from esim_dealer.cli.arguments import Commands, add_limit, filters, page_size
from esim_dealer.cli.output import volume
from esim_dealer.cli.session import Session
from esim_dealer.operations import profile_name
from esim_dealer.wire.vocabulary import AdvanceStep


def add_commands(commands: Commands) -> None:
    command = commands.add("profiles", profiles, "list your eSIMs, newest first")
    command.add_argument("--order-no")
    command.add_argument("--iccid")
    command.add_argument("--package", metavar="PACKAGE")
    command.add_argument("--lifecycle", metavar="STATUS", help="a lifecycleStatus, such as DELIVERED")
    add_limit(command)

    command = commands.add("plans", plans, "list the plans of an eSIM")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")

    command = commands.add("usage", usage, "show the usage of an eSIM")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")
    command.add_argument("--refresh", action="store_true", help="ask its supplier first")

    command = commands.add("cancel", cancel, "void a profile without a refund")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")

    command = commands.add("suspend", suspend, "suspend an eSIM until unsuspend")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")

    command = commands.add("unsuspend", unsuspend, "let a suspended eSIM work again")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")

    command = commands.add("sms", sms, "send an SMS to the device of an eSIM")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")
    command.add_argument("--message", required=True, metavar="TEXT", help="1 to 500 characters")
    command.add_argument("--transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)")

    command = commands.add("advance", advance, "move an eSIM through its life, in the test environment")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")
    command.add_argument("step", choices=get_args(AdvanceStep))
    command.add_argument("--bytes", type=int, metavar="N", help="with USE: the total used (default: everything)")


def profiles(session: Session, options: argparse.Namespace) -> None:
    chosen = filters(
        order_no=options.order_no, iccid=options.iccid, package_code=options.package, lifecycle_status=options.lifecycle
    )
    records = session.dealer.iter_profiles(page_size(options.limit), **chosen)
    session.table(
        ("PROFILE", "ICCID", "ORDER", "PACKAGE", "LIFECYCLE", "PLAN USE", "USED", "REMAINING"),
        itertools.islice(records, options.limit),
        lambda record: (
            record.profile.profile_id,
            record.profile.iccid,
            record.order_no,
            record.package_code,
            record.profile.lifecycle_status,
            record.profile.plan_use_status,
            volume(record.profile.data_usage_bytes),
            volume(record.profile.remain_data_bytes),
        ),
    )


def plans(session: Session, options: argparse.Namespace) -> None:
    session.table(
        ("PLAN", "TYPE", "MODE", "PACKAGE", "ORDER", "STATUS", "USED", "OF", "START", "END"),
        session.dealer.plans(**profile_name(options.profile)).plans,
        lambda plan: (
            plan.plan_no,
            plan.type,
            plan.mode,
            plan.package_code,
            plan.order_no,
            plan.status,
            volume(plan.data_usage_bytes),
            volume(plan.data_total_bytes),
            plan.start_time,
            plan.end_time,
        ),
    )


def usage(session: Session, options: argparse.Namespace) -> None:
    usage = session.dealer.usage(**profile_name(options.profile), refresh=options.refresh)
    session.show(usage)
    if not session.as_json:
        print(f"used {volume(usage.data_usage_bytes)} of {volume(usage.data_total_bytes)}")


def cancel(session: Session, options: argparse.Namespace) -> None:
    session.show(session.dealer.cancel(**profile_name(options.profile)))


def suspend(session: Session, options: argparse.Namespace) -> None:
    session.show(session.dealer.suspend(**profile_name(options.profile)))


def unsuspend(session: Session, options: argparse.Namespace) -> None:
    session.show(session.dealer.unsuspend(**profile_name(options.profile)))


def sms(session: Session, options: argparse.Namespace) -> None:
    transaction_id = options.transaction_id or f"cli-{uuid.uuid4()}"
    session.note(f"sending, --transaction-id {transaction_id}", transactionId=transaction_id)
    session.show(session.dealer.sms(transaction_id, options.message, **profile_name(options.profile)))


def advance(session: Session, options: argparse.Namespace) -> None:
    profile = session.dealer.advance(options.step, **profile_name(options.profile), data_usage_bytes=options.bytes)
    if session.as_json:
        session.show(profile)
        return
    statuses = (profile.lifecycle_status, profile.smdp_status, profile.esim_status, profile.plan_use_status)
    shown = "  ".join(str(status or "-") for status in statuses)
    print(f"{profile.iccid}  {shown}  used {volume(profile.data_usage_bytes)}")
