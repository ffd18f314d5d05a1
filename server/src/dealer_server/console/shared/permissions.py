"""Which roles may do what, and which parts of a page does a user see?

A role is written with its kind: "op:admin" works for the operator, "dealer:admin" for a dealer.
"""

from typing import NamedTuple

from dealer_server.console.shared.request_context import User

OPERATORS = ("op:admin", "op:finance", "op:support", "op:readonly")
OPERATOR_ADMINS = ("op:admin",)
OPERATOR_FINANCE = ("op:admin", "op:finance")
OPERATOR_SUPPORT = ("op:admin", "op:support")
CODE_VIEWERS = ("op:admin", "op:support")
"""Who may see activation codes, and so the bodies of webhooks and of refused calls."""
DEALERS = ("dealer:admin", "dealer:developer", "dealer:finance")
DEALER_DEVELOPERS = ("dealer:admin", "dealer:developer")
DEALER_FINANCE = ("dealer:admin", "dealer:finance")
ADMINS = ("op:admin", "dealer:admin")
EVERYBODY = OPERATORS + DEALERS


class Permissions(NamedTuple):
    """Which buttons and parts of a page a user sees. The declarations of the pages decide what is allowed."""

    money: bool
    support: bool
    terms: bool
    codes: bool
    secrets: bool


def permissions(user: User) -> Permissions:
    return Permissions(
        money=user.full_role in OPERATOR_FINANCE + DEALER_FINANCE,
        support=user.full_role in OPERATOR_SUPPORT,
        terms=user.full_role in OPERATOR_ADMINS,
        codes=user.full_role in CODE_VIEWERS,
        secrets=user.full_role in DEALER_DEVELOPERS,
    )
