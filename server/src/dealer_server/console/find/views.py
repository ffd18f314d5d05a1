"""Saved views: the filters of a list, under a name of the user's own."""

from urllib.parse import parse_qsl, urlencode

from dealer_server.console.shared import params
from dealer_server.console.shared.page import action
from dealer_server.console.shared.permissions import EVERYBODY
from dealer_server.console.shared.request_context import NotFound, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.store.console import kept

LISTS = (
    "/console/orders",
    "/console/profiles",
    "/console/refunds",
    "/console/webhooks",
    "/console/dealers",
    "/console/packages",
    "/console/audit",
)
VIEW = "/console/views/{view_id}"
MOST, MAX_NAME, MAX_QUERY = 20, 40, 1_000


@action("/console/views", EVERYBODY)
async def save(context: RequestContext) -> Redirect:
    """`query`: the filters as they stand in the list's address."""
    path, name = context.form.get("path", ""), _name(context)
    pairs = parse_qsl(context.form.get("query", ""), max_num_fields=20)
    query = urlencode([(key, value) for key, value in pairs if key not in ("before", "trail")])
    if path not in LISTS or not query or len(query) > MAX_QUERY:
        raise OperatorError("Only filters of a list can be saved as a view")
    async with context.parts.database.connection() as connection:
        if not await kept.save_view(connection, context.user.user_id, path, name, query, MOST):
            raise OperatorError(f"There are {MOST} views of this list: delete one first")
    return Redirect(f"{path}?{query}", f"The view {name} is saved")


@action(VIEW, EVERYBODY)
async def rename(context: RequestContext) -> Redirect:
    name = _name(context)
    async with context.parts.database.connection() as connection:
        done = await kept.rename_view(connection, context.user.user_id, _view_id(context), name)
    if done is None:
        raise NotFound
    if not done:
        raise OperatorError(f"There is a view {name} of this list already", "name")
    return Redirect(_list(context), f"The view is called {name} now")


@action(f"{VIEW}/delete", EVERYBODY)
async def delete(context: RequestContext) -> Redirect:
    async with context.parts.database.connection() as connection:
        if not await kept.delete_view(connection, context.user.user_id, _view_id(context)):
            raise NotFound
    return Redirect(_list(context), "The view is deleted")


def _view_id(context: RequestContext) -> int:
    return params.path_number(context, "view_id")


def _name(context: RequestContext) -> str:
    """Raises OperatorError."""
    name = " ".join(context.form.get("name", "").split())
    if not 1 <= len(name) <= MAX_NAME:
        raise OperatorError(f"A name of 1 to {MAX_NAME} characters is needed", "name")
    return name


def _list(context: RequestContext) -> str:
    """The list that the form was on."""
    path = context.form.get("path", "")
    return path if path in LISTS else "/console"
