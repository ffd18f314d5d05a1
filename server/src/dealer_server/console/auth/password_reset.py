"""The pages of a user who forgot the password: one asks for a link, the link leads to the other. They are for
everybody, and say the same whether or not there is such a user."""

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from dealer_server.clock import Clock
from dealer_server.console.auth import forms, sign_in
from dealer_server.console.shared import rendering
from dealer_server.console.shared.request_context import Parts
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import password_reset
from dealer_server.operations.users.attempts import TooManyTries
from dealer_server.operations.users.password import MAX_LENGTH, MIN_LENGTH, Busy
from dealer_server.operations.users.password_reset import LinkEnded

TEMPLATE = "password_reset.html"
FORGOT = password_reset.PATH.rstrip("/")
GONE = 410


class PasswordResets:
    def __init__(self, parts: Parts, clock: Clock):
        self._parts = parts
        self._clock = clock

    def routes(self) -> list[Route]:
        """For everybody."""
        link = f"{password_reset.PATH}{{token}}"
        return [
            Route(FORGOT, self.forgot),
            Route(FORGOT, self.send, methods=["POST"]),
            Route(link, self.show),
            Route(link, self.submit, methods=["POST"]),
        ]

    async def forgot(self, request: Request) -> Response:
        return self._page(request, "FORGOT" if self._parts.settings.mails != "none" else "NO_MAILS")

    async def send(self, request: Request) -> Response:
        """Whether there is such a user is looked up once the answer has been sent, so that its time tells nothing."""
        name, parts, now = (await forms.read(request)).texts.get("name", "").strip(), self._parts, self._clock()
        if not name or parts.settings.mails == "none":
            return await self.forgot(request)
        try:
            await password_reset.count_request(parts.database, name, request.state.visitor.address, now)
        except TooManyTries as many:
            return self._page(request, "FORGOT", 429, name=name, error=sign_in.wait(many.seconds))
        page = self._page(request, "SENT", name=name)
        page.background = BackgroundTask(password_reset.send_link, parts.database, parts.data_keys, name, now)
        return page

    async def show(self, request: Request) -> Response:
        return await self._choose(request)

    async def submit(self, request: Request) -> Response:
        """One password, given twice."""
        form, parts = (await forms.read(request)).texts, self._parts
        password, token = form.get("new", ""), request.path_params["token"]
        if password != form.get("again"):
            return await self._choose(request, 400, "The two passwords are not the same.")
        try:
            await password_reset.reset(
                parts.database, parts.passwords, token, password, request.state.visitor, self._clock()
            )
        except LinkEnded:
            return self._page(request, "ENDED", GONE)
        except OperatorError as why:
            return await self._choose(request, 400, f"{str(why)[:1].upper()}{str(why)[1:]}.")
        except TooManyTries as many:
            return await self._choose(request, 429, sign_in.wait(many.seconds))
        except Busy:
            return await self._choose(request, 503, sign_in.CROWDED)
        return self._page(request, "DONE")

    async def _choose(self, request: Request, status: int = 200, error: str = "") -> Response:
        try:
            name = await password_reset.find(self._parts.database, request.path_params["token"], self._clock())
        except LinkEnded:
            return self._page(request, "ENDED", GONE)
        return self._page(request, "CHOOSE", status, name=name, error=error)

    def _page(
        self, request: Request, state: str, status: int = 200, *, name: str = "", error: str = ""
    ) -> HTMLResponse:
        minutes = round(password_reset.LIFETIME.total_seconds() / 60)
        fields = {
            "environment": self._parts.settings.environment,
            "path": request.url.path,
            "forgot": FORGOT,
            "state": state,
            "name": name,
            "error": error,
            "minutes": minutes,
            "least": MIN_LENGTH,
            "most": MAX_LENGTH,
        }
        return HTMLResponse(rendering.render(TEMPLATE, fields), status)
