"""What is known of a call that succeeded?"""

from dealer_server.console.shared import params
from dealer_server.console.shared.api_log import subjects
from dealer_server.console.shared.api_log.words import SLOW_MS, Log, operation, place
from dealer_server.console.shared.request_context import Html, NotFound, RequestContext
from dealer_server.store.tenants import served_call


async def show_call(context: RequestContext, log: Log) -> Html:
    """Raises NotFound, also where newer calls replaced it."""
    async with context.parts.database.connection() as connection:
        call = await served_call.find(connection, log.tenant_id, params.path_number(context, "number"))
        if call is None:
            raise NotFound
        named = (call.path, (call.subject_kind, call.subject))
        [about] = await subjects.of_calls(connection, log.tenant_id, [named])
    return Html(log=log, call=call, about=about, operation=operation(call.path), place=place(call.path), slow=SLOW_MS)
