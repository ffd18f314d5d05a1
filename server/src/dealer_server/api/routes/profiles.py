"""The routes of eSIM profiles: list, void, suspend, read the usage, send an SMS, and move one on in the test
environment."""

from dealer_server.api.routes.route import Parts, route
from dealer_server.operations.cache import Caller
from dealer_server.operations.profiles import list as listing
from esim_dealer.wire import calls, operations
from esim_dealer.wire.snapshot import Profile
from esim_dealer.wire.vocabulary import ResultCode

FIELDS = {
    "profiles": "One per unit. Absent in ORDER_PAID.",
    "records": "Newest first.",
    "profile": "The eSIM.",
    "profileId": "Names the eSIM.",
    "iccid": "The card's number (ITU-T E.118), once it is allocated.",
    "qrCodeUrl": "PNG to scan and install; with `.svg` appended, an SVG; `?size=` in pixels, 200 to 1200. It never"
    " changes; whoever has it can install.",
    "installPageUrl": "Page for the buyer: how to install, state, usage. It never changes; whoever has it can install.",
    "activationCode": "`LPA:1$…` (GSMA SGP.22).",
    "smdpAddress": "The activation code's SM-DP+ address.",
    "matchingId": "The activation code's MatchingID.",
    "installUrls": "Links that open the phone's own installer.",
    "ios": "For iPhones.",
    "android": "For Android phones.",
    "lifecycleStatus": "Where the eSIM stands; use this in your logic.",
    "ProfileList.lifecycleStatus": "One word or several. With `PENDING`, profiles that wait for their codes too.",
    "esimStatus": "The supplier's word, as it came. Supplementary.",
    "smdpStatus": "The SM-DP+'s word, as it came. Supplementary.",
    "planUseStatus": "Whether its plan has started or ended.",
    "planUseStartTime": "When it started.",
    "planUseEndTime": "When it ends or ended.",
    "dataUsageBytes": "Used so far.",
    "remainDataBytes": "Still left; absent where unlimited.",
    "usagePercent": "Used, of the whole.",
    "activated": "Whether it was ever activated.",
    "cancelled": "Whether it is void.",
    "suspended": "Whether it is suspended, by the latest word of it; absent where it is not.",
    "Suspended.suspended": "Whether it is suspended now.",
    "suspendedAt": "Since when it is suspended; absent where its supplier did it and does not say.",
    "ProfileList.cancelled": "Only void ones, or only the others.",
    "asyncStatus": "`PENDING`: its supplier has to be asked.",
    "refresh": "Whether its supplier is asked first.",
    "dataTotalBytes": "The whole volume; null where it is unlimited.",
    "realTime": "Whether the supplier was asked within the last minute, and has answered since.",
    "lastUpdateTime": "When its supplier last reported on it.",
    "SendSms.transactionId": "Your idempotency key of this SMS; those of orders are others.",
    "SendSms.message": "The text.",
    "smsNo": "Names the SMS.",
    "Sms.status": "What became of it.",
    "failReason": "`NOT_SENT`: surely not sent. `UNKNOWN`: it may have been sent. Present where `status` is `FAILED`.",
    "Sms.duplicate": "Whether an earlier SMS was found under this transactionId.",
    "step": "What happens to it.",
    "AdvanceProfile.dataUsageBytes": "With `USE` only: the total used by then. Without it, everything.",
}
VOID_REFUSALS: tuple[ResultCode, ...] = ("000111", "310404", "200004", "200002")
SUSPEND_REFUSALS: tuple[ResultCode, ...] = ("000111", "310404", "200022", "200010", "200002", "200004")


@route(
    operations.PROFILE_LIST,
    summary="List allocated eSIM profiles",
    description=(
        "Your allocated eSIM profiles, newest first, each with the order and line it belongs to. Those that still wait"
        " for their codes are listed where `lifecycleStatus` names `PENDING`, and one without codes where `profileId`"
        " names it. All filters must match; ids that name nothing of yours give an empty page."
    ),
)
async def list_profiles(parts: Parts, caller: Caller, call: calls.ProfileList) -> calls.Profiles:
    return await parts.lists.run(
        lambda reads: listing.list_profiles(reads, parts.data_keys, parts.links, caller.tenant_id, call), exact=True
    )


@route(
    operations.CANCEL,
    summary="Cancel a profile",
    description=(
        "Voids a profile, named by `profileId` or `iccid`. The wallet is not credited: for money back use"
        " `/esim/refund` instead. Repeating it is success. `asyncStatus` `PENDING`: its supplier has to be asked; wait"
        " for `DELIVERY_UPDATED` with `PROFILE_CANCELLED`, or query the order."
    ),
    refusals=VOID_REFUSALS,
)
async def cancel_profile(parts: Parts, caller: Caller, call: calls.VoidProfile) -> calls.Voided:
    return await parts.voids.void(caller.tenant_id, call)


@route(
    operations.REVOKE,
    summary="Revoke a profile",
    description="The same as `/esim/profile/cancel`.",
    refusals=VOID_REFUSALS,
)
async def revoke_profile(parts: Parts, caller: Caller, call: calls.VoidProfile) -> calls.Voided:
    return await parts.voids.void(caller.tenant_id, call)


@route(
    operations.SUSPEND,
    summary="Suspend a profile",
    description=(
        "Suspends a profile, named by `profileId` or `iccid`: it has no service until `/esim/profile/unsuspend`, and"
        " its plan runs on. Repeating it is success. `asyncStatus` `PENDING`: its supplier has to be asked; wait for"
        " `DELIVERY_UPDATED`, or repeat the call, which is refused with `200002` if the supplier refused."
    ),
    refusals=SUSPEND_REFUSALS,
)
async def suspend_profile(parts: Parts, caller: Caller, call: calls.SuspendProfile) -> calls.Suspended:
    return await parts.suspender.suspend(caller.tenant_id, call)


@route(
    operations.UNSUSPEND,
    summary="Let a suspended profile work again",
    description="Ends what `/esim/profile/suspend` began. Everything else is as there.",
    refusals=SUSPEND_REFUSALS,
)
async def unsuspend_profile(parts: Parts, caller: Caller, call: calls.SuspendProfile) -> calls.Suspended:
    return await parts.suspender.unsuspend(caller.tenant_id, call)


@route(
    operations.USAGE,
    summary="Read a profile's usage",
    description=(
        "What is used of a profile's plan, as last reported. With `refresh` its supplier is asked first, at most once a"
        " minute; `realTime` says whether the answer has come. What it brings is an event like any other."
    ),
    refusals=("000111", "310404", "200022", "200010"),
)
async def read_usage(parts: Parts, caller: Caller, call: calls.ProfileUsage) -> calls.Usage:
    return await parts.usage(caller.tenant_id, call)


@route(
    operations.SMS,
    summary="Send an SMS to a profile",
    description=(
        "Sends a text to the device in which a profile is installed, free of charge: at most one a minute to each"
        " profile (`101013`, with `Retry-After`). Call again with the same `transactionId` to learn what became of it:"
        " nothing is sent twice. `FAILED` with `failReason` `UNKNOWN`: it may have been sent, and is not repeated."
    ),
    refusals=("000111", "310402", "310404", "200022", "200010", "200002"),
)
async def send_sms(parts: Parts, caller: Caller, call: calls.SendSms) -> calls.Sms:
    return await parts.sms.send(caller.tenant_id, call)


@route(
    operations.ADVANCE,
    summary="Move a profile through its life",
    description=(
        "In the test environment only: lets the simulated network report a step in the life of a profile, now. All else"
        " follows as from a real network: its statuses, the order's, and `DELIVERY_UPDATED`. Steps may be left out and"
        " come in any order; what is further on already stays."
    ),
    refusals=("000111", "310404", "200022", "200002", "200010", "200004"),
)
async def advance_profile(parts: Parts, caller: Caller, call: calls.AdvanceProfile) -> Profile:
    return await parts.advance(caller.tenant_id, call)
