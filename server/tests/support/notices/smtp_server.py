"""A mail server on a socket of its own, for tests: ESMTP with STARTTLS and AUTH, and what tests make it refuse."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

from support.patience import PATIENCE


@dataclass
class Mail:
    """A mail as it arrived."""

    sender: str
    to: list[str]
    raw: bytes
    tls: bool
    user: str

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.raw, _class=EmailMessage, policy=default)

    @property
    def plain(self) -> str:
        body = self.message.get_body(("plain",))
        assert body is not None
        return body.get_content()

    @property
    def html(self) -> str:
        body = self.message.get_body(("html",))
        assert body is not None
        return body.get_content()


@dataclass
class SmtpServer:
    """`tls`: offered by STARTTLS. `login`: user and password that are asked for. `refusals`: what the next mails are
    answered at a command, such as ("RCPT", "550 no such user"), one for each mail; then all are taken."""

    tls: ssl.SSLContext | None = None
    login: tuple[str, str] | None = None
    refusals: list[tuple[str, str]] = field(default_factory=list)
    mails: list[Mail] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    port: int = 0
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def received(self, count: int, to: str) -> list[Mail]:
        """The mails to an address, once there are so many."""

        def found() -> list[Mail]:
            return [mail for mail in self.mails if mail.to == [to]]

        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: len(found()) >= count)
        return found()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await _Conversation(self, reader, writer).run()
        writer.close()

    async def keep(self, mail: Mail) -> None:
        self.mails.append(mail)
        async with self._arrived:
            self._arrived.notify_all()


class _Conversation:
    def __init__(self, server: SmtpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._server = server
        self._reader = reader
        self._writer = writer
        self._refusal = server.refusals.pop(0) if server.refusals else ("", "")
        self._tls = False
        self._user = ""
        self._sender = ""
        self._to: list[str] = []

    async def run(self) -> None:
        await self._say("220 mail.test ESMTP")
        while line := await self._reader.readline():
            text = line.decode("latin-1").rstrip("\r\n")
            command = text.split(" ")[0].split(":")[0].upper()
            self._server.commands.append(command)
            if command == self._refusal[0]:
                await self._say(self._refusal[1])
            elif command == "QUIT":
                return await self._say("221 bye")
            else:
                await self._answer(command, text)
        return None

    async def _answer(self, command: str, text: str) -> None:
        match command:
            case "EHLO":
                offers = ["STARTTLS"] * (self._server.tls is not None and not self._tls)
                lines = ["mail.test", *offers, *(["AUTH PLAIN"] if self._server.login else [])]
                await self._say(*(f"250{'-' if at < len(lines) - 1 else ' '}{one}" for at, one in enumerate(lines)))
            case "STARTTLS" if self._server.tls is not None:
                await self._say("220 go")
                await self._writer.start_tls(self._server.tls)
                self._tls = True
            case "AUTH":
                _, user, password = base64.b64decode(text.split(" ")[2]).decode().split("\0")
                good = (user, password) == self._server.login
                self._user = user if good else ""
                await self._say("235 welcome" if good else "535 no")
            case "MAIL":
                self._sender = text.partition("<")[2].partition(">")[0]
                await self._say("250 ok" if self._user or not self._server.login else "530 sign in first")
            case "RCPT":
                self._to.append(text.partition("<")[2].partition(">")[0])
                await self._say("250 ok")
            case "DATA":
                await self._say("354 go on")
                raw = (await self._reader.readuntil(b"\r\n.\r\n"))[:-3].replace(b"\r\n..", b"\r\n.")
                await self._server.keep(Mail(self._sender, self._to, raw, self._tls, self._user))
                await self._say("250 taken")
            case _:
                await self._say("502 what?")

    async def _say(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await self._writer.drain()


@asynccontextmanager
async def mail_server(
    tls: ssl.SSLContext | None = None, login: tuple[str, str] | None = None, *, implicit: bool = False
) -> AsyncIterator[SmtpServer]:
    """`implicit`: TLS from the first byte."""
    made = SmtpServer(tls=None if implicit else tls, login=login)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls if implicit else None)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
