"""The form of an AppKey: its name, its scopes, and from where it may be used."""

from collections.abc import Mapping

from dealer_server.console.shared import uses
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants.credentials import KeyLimits
from dealer_server.rules.access.scopes import SCOPES


def limits_of(form: Mapping[str, str]) -> KeyLimits:
    return KeyLimits(
        name=form.get("name", ""),
        scopes=[scope for scope in SCOPES if form.get(f"scope_{scope}") == "on"],
        ip_allow=addresses(form),
    )


def addresses(form: Mapping[str, str]) -> list[str]:
    """Of the field ip_allow, one a line or separated by commas."""
    return form.get("ip_allow", "").replace(",", " ").split()


async def unsure(context: RequestContext, tenant_id: int, app_key: str | None = None) -> list[tuple[str, str]]:
    """Whom the allowlist of the form would shut out, with what comes from there; nobody where the form says that this
    is meant. Raises OperatorError for an entry that is no address."""
    if context.form.get("meant") == "on":
        return []
    try:
        return await uses.shut_out(context, tenant_id, addresses(context.form), app_key)
    except ValueError as error:
        raise OperatorError(str(error), "ip_allow") from None
