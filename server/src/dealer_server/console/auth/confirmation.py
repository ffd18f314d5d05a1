"""The page that the link leads to by which somebody confirms an address for notices. It is for everybody who has the
link; opening it changes nothing."""

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from dealer_server.clock import Clock
from dealer_server.console.shared import rendering
from dealer_server.console.shared.request_context import Parts
from dealer_server.operations.notices import confirm
from dealer_server.operations.notices.confirm import LinkEnded

TEMPLATE = "confirmation.html"
GONE = 410


class Confirmations:
    def __init__(self, parts: Parts, clock: Clock):
        self._parts = parts
        self._clock = clock

    def routes(self) -> list[Route]:
        path = f"{confirm.PATH}{{token}}"
        return [Route(path, self.show), Route(path, self.submit, methods=["POST"])]

    async def show(self, request: Request) -> Response:
        try:
            found = await confirm.find(self._parts.database, request.path_params["token"], self._clock())
        except LinkEnded:
            return self._page(request, "ENDED", status=GONE)
        return self._page(request, "OPEN", found.mail)

    async def submit(self, request: Request) -> Response:
        try:
            mail = await confirm.confirm(self._parts.database, request.path_params["token"], self._clock())
        except LinkEnded:
            return self._page(request, "ENDED", status=GONE)
        return self._page(request, "DONE", mail)

    def _page(self, request: Request, state: str, mail: str = "", status: int = 200) -> HTMLResponse:
        fields = {"environment": self._parts.settings.environment, "path": request.url.path}
        return HTMLResponse(rendering.render(TEMPLATE, {**fields, "state": state, "mail": mail}), status)
