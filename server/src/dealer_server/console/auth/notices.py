"""What is a user told of, and by which way? Settings, and the page of a notice, of operators and dealers."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import NamedTuple

from dealer_server.console.auth import sign_in
from dealer_server.console.find import profiles
from dealer_server.console.shared import params
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.notices import example
from dealer_server.operations.notices import confirm, settings
from dealer_server.operations.notices.settings import Listener
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.wallets.low_limits import low_limits
from dealer_server.rules.money import money
from dealer_server.rules.notices.low_balance import PERCENTS
from dealer_server.rules.notices.notice import OPERATORS, ROLES, AnyNoticeType, address, types_of
from dealer_server.rules.notices.samples import sample
from dealer_server.rules.notices.texts import LABELS, Text, text_of
from dealer_server.store.console import dealer
from dealer_server.store.notices import confirmations, listing, marks, recipients
from dealer_server.store.notices.outbox import Notice

NOTICES, ONE, SETTINGS = "/console/notices", "/console/notices/{notice_id}", "/console/notices/settings"
MAILED = "Open the link sent to {}: notices go there once the address is confirmed"
OPERATOR_READERS = ("op:admin", "op:finance", "op:support")
READERS = (*OPERATOR_READERS, *DEALERS)
"""Who is told of anything."""


GROUPS: Mapping[str, Sequence[AnyNoticeType]] = {
    "Money": ("LOW_BALANCE", "TOPUP_REVIEWED", "REFUND_REVIEWED", "PRICE_CHANGED"),
    "Customers": ("PLANS_ENDING",),
    "Integration": ("RECEIVER_FAILING", "CREDENTIALS_CHANGED"),
    "To review": ("TOPUP_WAITING", "REFUND_WAITING", "QUEUE_OLD"),
    "Supply": ("SUPPLIER_DOWN", "STOCK_LOW"),
    "Dealers": ("DEALER_LOW", "DEALER_FAILING"),
}
assert {name for group in GROUPS.values() for name in group} == set(ROLES), "every notice is in a group"
_NAMES: Mapping[str, str] = {name: label for name, (label, _) in LABELS.items()}


class Choice(NamedTuple):
    """A kind of notice that a user may switch off."""

    name: str
    label: str
    text: str
    on: bool
    example: Text


@page(SETTINGS, READERS, "account/notice_settings.html")
async def choices(context: RequestContext) -> Html:
    """What the user is mailed, where to, and when."""
    user = context.user
    async with context.parts.database.connection() as connection:
        setting = await recipients.setting(connection, user.user_id)
        unconfirmed = await confirmations.of_user(connection, user.user_id)
        url = await recipients.url(connection, user.tenant_id or OPERATORS)
        low = "" if user.tenant_id is None else await _low_balance(connection, user.tenant_id)
    return Html(
        setting=setting,
        unconfirmed=unconfirmed,
        expired=unconfirmed is not None and unconfirmed.expires_at <= context.now,
        address=address(setting.mail, user.name),
        name_is_address=bool(address("", user.name)),
        groups=_grouped(types_of(user.full_role), setting.off, {"LOW_BALANCE": low} if low else {}),
        url=url,
        mails=context.parts.settings.mails,
        digest_hour=context.parts.settings.digest_hour,
    )


@page(ONE, READERS, "account/notice.html")
async def notice(context: RequestContext) -> Html:
    """What it says, what it is about, and what became of it. From now on this user has read it."""
    user, notice_id = context.user, params.path_number(context, "notice_id")
    tenant_id = user.tenant_id or OPERATORS
    async with context.parts.database.connection() as connection:
        found = await listing.one(connection, tenant_id, types_of(user.full_role), notice_id)
        if found is None:
            raise NotFound
        outcomes = await listing.outcomes(connection, tenant_id, [notice_id])
        await marks.open_one(connection, user.user_id, notice_id)
        text = await _text(connection, context, found)
    plans = found.data["plans"] if found.notice_type == "PLANS_ENDING" else []
    return Html(
        notice=found,
        text=text,
        label=_NAMES[found.notice_type],
        outcomes=outcomes,
        plans=[(one, datetime.fromisoformat(one["planUseEndTime"])) for one in plans],
        more=int(found.data["count"]) - len(plans) if plans else 0,
        mails=context.parts.settings.mails,
    )


async def _text(connection: Connection, context: RequestContext, found: Notice) -> Text:
    """Of plans that are about to end, with what may be done as the home page says it."""
    text = text_of(found.notice_type, found.data)
    if found.notice_type != "PLANS_ENDING" or context.user.tenant_id is None:
        return text
    ending = (await profiles.ending_by_day(connection, context)).get(date.fromisoformat(found.data["date"]))
    return text._replace(sentence=ending.sentence) if ending and ending.plans else text


@action(f"{NOTICES}/read", READERS)
async def read(context: RequestContext) -> Redirect:
    """All up to the newest that the page showed."""
    newest = params.number(context.form, "newest")
    if newest is not None:
        async with context.parts.database.connection() as connection:
            await marks.read_to(connection, context.user.user_id, newest)
    return Redirect(NOTICES)


async def _low_balance(connection: Connection, tenant_id: int) -> str:
    """Below which amounts the dealer is told; "" where that is not known before its first top-up."""
    wallet = await dealer.wallet(connection, tenant_id)
    if wallet.low_balance_threshold:
        return f"Below {money.shown(wallet.low_balance_threshold, wallet.currency)}, your threshold."
    amounts = [
        money.shown(amount, wallet.currency) for amount in await low_limits(connection, tenant_id, wallet.currency)
    ]
    if not amounts:
        return ""
    percents = " and ".join(f"{percent} %" for percent in PERCENTS)
    return f"Below {' and '.join(amounts)}: {percents} of the balance after your last top-up."


def _grouped(own: Collection[str], off: Collection[str], texts: Mapping[str, str]) -> list[tuple[str, list[Choice]]]:
    """What a user may be told of, by purpose. `texts`: of which, where it is known more exactly."""
    chosen = {
        title: [
            Choice(name, LABELS[name][0], texts.get(name, LABELS[name][1]), name not in off, sample(name))
            for name in names
            if name in own
        ]
        for title, names in GROUPS.items()
    }
    return [(title, choices) for title, choices in chosen.items() if choices]


@action(SETTINGS, READERS)
async def save(context: RequestContext) -> Redirect:
    form, user = context.form, context.user
    wanted = [name for name in types_of(user.full_role) if form.get(name) == "on"]
    mail = params.text(form, "mail") or ""
    listener, parts = Listener(user.user_id, user.tenant_id, user.name, user.full_role), context.parts
    try:
        linked = await settings.set_setting(
            parts.database,
            parts.data_keys,
            listener,
            mail,
            context.now,
            digest=form.get("when") == "daily",
            wanted=wanted,
        )
    except TooManyTries as many:
        return Redirect(SETTINGS, sign_in.wait(many.seconds), failed=True)
    return Redirect(
        SETTINGS, f"Your settings are saved. {MAILED.format(mail)}" if linked else "Your settings are saved."
    )


@action(f"{NOTICES}/test", READERS)
async def send_test(context: RequestContext) -> Redirect:
    """A made-up notice of one kind, mailed to the user who asks."""
    parts, user = context.parts, context.user
    chosen: list[AnyNoticeType] = [one for one in types_of(user.full_role) if one == context.form.get("test")]
    async with parts.database.connection() as connection:
        setting = await recipients.setting(connection, user.user_id)
    to = address(setting.mail, user.name)
    if not chosen or not to:
        return Redirect(SETTINGS, "Enter an email address and save it first", failed=True)
    try:
        problem = await example.send(parts.settings, parts.database, user.user_id, to, chosen[0], lambda: context.now)
    except TooManyTries as many:
        return Redirect(SETTINGS, sign_in.wait(many.seconds), failed=True)
    if problem:
        return Redirect(SETTINGS, f"The test was not sent: {problem}", failed=True)
    return Redirect(SETTINGS, f"A test of “{LABELS[chosen[0]][0]}” is sent to {to}")


@action(f"{NOTICES}/confirmation", READERS)
async def resend(context: RequestContext) -> Redirect:
    """Another link to the address that is not confirmed yet."""
    parts, user = context.parts, context.user
    try:
        mail = await confirm.resend(parts.database, parts.data_keys, user.user_id, user.tenant_id, context.now)
    except TooManyTries as many:
        return Redirect(SETTINGS, sign_in.wait(many.seconds), failed=True)
    return Redirect(SETTINGS, MAILED.format(mail))
