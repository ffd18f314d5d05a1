"""The page that an invitation leads to: who is invited chooses a password and is signed in.

It is for those who are not signed in. Opening it changes nothing.
"""

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from dealer_server.clock import Clock
from dealer_server.console.auth import forms, sign_in
from dealer_server.console.shared import rendering
from dealer_server.console.shared.request_context import Parts
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import invitations, sessions
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.invitations import InvitationEnded
from dealer_server.operations.users.password import MAX_LENGTH, MIN_LENGTH, Busy

TEMPLATE = "invitation.html"
GONE = 410


class Invitations:
    def __init__(self, parts: Parts, clock: Clock):
        self._parts = parts
        self._clock = clock

    def routes(self) -> list[Route]:
        """For everybody."""
        path = f"{invitations.PATH}{{token}}"
        return [Route(path, self.show), Route(path, self.submit, methods=["POST"])]

    async def show(self, request: Request) -> Response:
        return await self._page(request)

    async def submit(self, request: Request) -> Response:
        """One password, given twice."""
        form, parts, now = (await forms.read(request)).texts, self._parts, self._clock()
        password = form.get("new", "")
        if password != form.get("again"):
            return await self._page(request, 400, "The two passwords are not the same.")
        token = request.path_params["token"]
        try:
            result = await invitations.accept(
                parts.database, parts.passwords, parts.data_keys, token, password, request.state.visitor, now
            )
        except InvitationEnded:
            return await self._page(request)
        except OperatorError as why:
            return await self._page(request, 400, f"{str(why)[:1].upper()}{str(why)[1:]}.")
        except TooManyTries as many:
            return await self._page(request, 429, sign_in.wait(many.seconds))
        except Busy:
            return await self._page(request, 503, sign_in.CROWDED)
        if before := request.cookies.get(sign_in.COOKIE):  # whoever was signed in here is not any more
            await sessions.sign_out(parts.database, before)
        return sign_in.signed_in(parts.settings, request, result, sign_in.HOME)

    async def _page(self, request: Request, status: int = 200, error: str = "") -> Response:
        fields = {"environment": self._parts.settings.environment, "error": error, "path": request.url.path}
        lengths = {"least": MIN_LENGTH, "most": MAX_LENGTH}
        try:
            found = await invitations.find(self._parts.database, request.path_params["token"], self._clock())
        except InvitationEnded as why:
            page = rendering.render(
                TEMPLATE, {**fields, **lengths, "ended": why.state or "UNKNOWN", "invitation": None}
            )
            return HTMLResponse(page, 404 if why.state is None else GONE)
        page = rendering.render(TEMPLATE, {**fields, **lengths, "ended": "", "invitation": found})
        return HTMLResponse(page, status)
