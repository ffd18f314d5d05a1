"""What did somebody do? The actions of the audit log as people say them, their kinds, and the pages of what they
changed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

ACTIONS: Mapping[str, str] = {
    "audit.export": "Exported the audit log",
    "catalog.create": "Created a package",
    "catalog.edit": "Changed a package",
    "catalog.export": "Exported the packages",
    "catalog.import": "Imported packages",
    "catalog.status": "Changed whether packages are on sale",
    "credentials.create": "Created an AppKey",
    "credentials.disable": "Disabled an AppKey",
    "credentials.enable": "Enabled an AppKey",
    "credentials.reset": "Changed an AppSecret",
    "credentials.set": "Changed an AppKey",
    "credentials.sign_webhooks": "Chose the AppKey that signs webhooks",
    "credentials.view": "Viewed an AppSecret",
    "keys.rotate": "Sealed secrets with the newest key",
    "notice.address": "Confirmed an email address",
    "notice.resend": "Sent an email again",
    "notice.url": "Changed the notice URL",
    "order.note": "Added a note to an order",
    "order.place": "Placed an order",
    "order.refund": "Requested a refund",
    "order.retry": "Retried an order",
    "orders.bulk": "Placed orders by CSV",
    "orders.export": "Exported orders",
    "dealers.export": "Exported dealers",
    "price_list.create": "Created a price list",
    "price_list.exceptions": "Changed exceptions of a price list",
    "price_list.export": "Exported a price list",
    "price_list.import": "Imported a price list",
    "price_list.remove": "Removed a price list",
    "price_list.set": "Changed a price list",
    "profile.cancel": "Cancelled an eSIM",
    "profile.mail": "Mailed an install page",
    "profile.recharge": "Recharged an eSIM",
    "profile.send_sms": "Sent an SMS",
    "profile.suspend": "Suspended an eSIM",
    "profile.unsuspend": "Ended a suspension",
    "profile.view_code": "Viewed an activation code",
    "profile.view_sms": "Read SMS",
    "profiles.export": "Exported eSIMs",
    "refund.approve": "Approved a refund",
    "refund.reject": "Rejected a refund",
    "refunds.export": "Exported refunds",
    "reports.export": "Exported a report",
    "statement.export": "Exported a statement",
    "topups.export": "Exported top-ups",
    "webhooks.export": "Exported webhook deliveries",
    "stock.load": "Loaded stock",
    "supplier.cost": "Changed a cost",
    "supplier.iccids": "Loaded ICCIDs for a supplier",
    "supplier.import": "Imported a supplier's packages",
    "supplier.remove": "Removed a supplier",
    "supplier.resolve": "Settled a purchase",
    "supplier.route": "Changed a route",
    "supplier.set": "Changed a supplier",
    "supplier.status": "Paused or resumed a supplier",
    "tenant.adjust": "Adjusted a wallet",
    "tenant.brand": "Changed an install page",
    "tenant.create": "Created a dealer",
    "tenant.price_list": "Assigned a price list",
    "tenant.set": "Changed the terms of a dealer",
    "topup.approve": "Approved a top-up",
    "topup.cancel": "Cancelled a top-up",
    "topup.reject": "Rejected a top-up",
    "topup.request": "Requested a top-up",
    "user.accept": "Accepted an invitation",
    "user.create": "Created a user",
    "user.invite": "Invited a user",
    "user.invite.resend": "Sent an invitation again",
    "user.invite.withdraw": "Withdrew an invitation",
    "user.password": "Changed their own password",
    "user.password.reset": "Chose a new password by mail",
    "user.reset": "Reset a user's password",
    "user.session.end": "Ended a session",
    "user.set": "Changed a user",
    "user.sign_in": "Signed in",
    "user.totp.off": "Turned two-factor sign-in off",
    "user.totp.on": "Turned two-factor sign-in on",
    "webhook.resend": "Resent webhooks",
    "webhook.set": "Changed a callback URL",
    "webhook.stop": "Stopped a job of webhooks",
    "webhook.sync": "Sent the current state of orders",
}


class Kind(NamedTuple):
    """Actions of a kind: those that begin with one of these words."""

    name: str
    words: Sequence[str]

    @property
    def actions(self) -> list[str]:
        return [action for action in ACTIONS if action.partition(".")[0] in self.words]


KINDS: Mapping[str, Kind] = {
    "orders": Kind("Orders and eSIMs", ("order", "orders", "profile", "profiles")),
    "money": Kind("Money", ("topup", "topups", "refund", "refunds", "statement", "reports")),
    "dealers": Kind("Dealers", ("tenant", "dealers", "credentials")),
    "catalogue": Kind("Packages and prices", ("catalog", "price_list", "stock")),
    "suppliers": Kind("Suppliers", ("supplier",)),
    "webhooks": Kind("Webhooks and notices", ("webhook", "webhooks", "notice")),
    "users": Kind("Users", ("user", "keys", "audit")),
}
_PAGES: Mapping[str, str] = {
    "orderNo": "/console/orders/{}",
    "profileId": "/console/profiles/{}",
    "packageCode": "/console/packages/{}",
    "package": "/console/packages/{}",
    "topupNo": "/console/search?q={}",
    "refundNo": "/console/search?q={}",
    "priceListId": "/console/price-lists/{}",
    "user": "/console/users?q={}",
}
"""Of what a fact names; what it changed stands first."""
_REMOVED = ("price_list.remove", "supplier.remove", "user.invite.withdraw")


def page_of(name: str, value: object) -> str:
    """The page of what a fact names; "" where it has none."""
    return _PAGES[name].format(quote(str(value), safe="")) if name in _PAGES and value is not None else ""


def changed_page(action: str, tenant_id: int | None, detail: Mapping[str, object]) -> str:
    """The page of what an act changed; "" where it has none."""
    if action in _REMOVED:
        return ""
    if action.startswith("supplier.") and "code" in detail:
        return f"/console/suppliers/{quote(str(detail['code']), safe=':')}"
    if "appKey" in detail and tenant_id is not None:
        return f"/console/dealers/{tenant_id}/credentials/{quote(str(detail['appKey']), safe='')}"
    if action.startswith("webhook") and tenant_id is not None:
        return f"/console/webhooks/endpoints/{tenant_id}"
    named = [page_of(name, detail[name]) for name in _PAGES if name in detail]
    if named:
        return named[0]
    return f"/console/dealers/{tenant_id}" if tenant_id is not None else ""
