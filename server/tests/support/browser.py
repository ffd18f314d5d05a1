"""A user of the console, for tests: a browser without scripts that keeps cookies and sends forms as pages do."""

import html
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import argon2
import httpx2

from dealer_server.operations.users import accounts
from dealer_server.operations.users.accounts import DEALER_ROLES, OPERATOR_ROLES
from dealer_server.operations.users.password import Passwords
from support.api_client import Service, http_client

# Cheap to check: tests sign in hundreds of times. The tests of signing in itself use dear ones too.
PASSWORDS = Passwords(argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
ROLES = [("op", role) for role in OPERATOR_ROLES] + [("dealer", role) for role in DEALER_ROLES]
_CSRF = re.compile(r'name="csrf" value="([0-9a-f]{128})"')


@dataclass
class Browser:
    """One browser. `name` and `password` are its user's."""

    url: str
    http: httpx2.AsyncClient = field(repr=False)
    user_id: int = 0
    name: str = ""
    password: str = ""

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(f"{self.url}{path}", headers=headers)

    async def send(
        self,
        path: str,
        fields: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        **headers: str,
    ) -> httpx2.Response:
        """A form as it is given, with no token of ours."""
        return await self.http.post(f"{self.url}{path}", data=dict(fields or {}), files=files, headers=headers)

    async def post(
        self, path: str, fields: Mapping[str, str] | None = None, files: Mapping[str, bytes] | None = None
    ) -> httpx2.Response:
        """A form with what this person's pages carry: the token, and a value of the form's own."""
        return await self.send(
            path, {"csrf": await self.csrf(), "once": secrets.token_hex(16), **(fields or {})}, files
        )

    async def refused(
        self, path: str, fields: Mapping[str, str] | None = None, files: Mapping[str, bytes] | None = None
    ) -> httpx2.Response:
        """The page that a refused form leads to: it shows the form again, and says why."""
        answer = await self.post(path, fields, files)
        assert answer.status_code == 303, f"{path}: {answer.status_code}"
        return await self.get(answer.headers["location"])

    async def csrf(self) -> str:
        found = _CSRF.search((await self.get("/console/account")).text)
        assert found, "not signed in"
        return found[1]

    async def sign_in(self, name: str | None = None, password: str | None = None, **fields: str) -> httpx2.Response:
        given = {
            "name": self.name if name is None else name,
            "password": self.password if password is None else password,
        }
        return await self.send("/console/sign-in", given | fields)

    @property
    def token(self) -> str:
        return self.http.cookies.get("dealer_console", default="")


def said(page: httpx2.Response) -> str:
    """The message of a page about the form sent before, or its error, as a reader sees it."""
    found = re.search(r'class="(?:flash[^>]*>.*?<span>|invalid-feedback[^>]*>)(.*?)</', page.text, re.DOTALL)
    return html.unescape(re.sub("<[^>]+>", "", found[1])) if found else ""


@asynccontextmanager
async def browser(service: Service) -> AsyncIterator[Browser]:
    """Nobody has signed in."""
    async with http_client() as http:
        yield Browser(service.url, http)


@asynccontextmanager
async def signed_in(
    service: Service, role: str = "admin", tenant_id: int | None = None, name: str | None = None
) -> AsyncIterator[Browser]:
    """Somebody new, of the operator or of a dealer."""
    name, password = name or f"{role}-{secrets.token_hex(6)}", secrets.token_urlsafe(12)
    made = await accounts.create(service.database, PASSWORDS, tenant_id, name, role, "test", password)
    async with browser(service) as inside:
        inside.user_id, inside.name, inside.password = made.user_id, made.name, made.password
        assert (await inside.sign_in()).status_code == 303
        yield inside
