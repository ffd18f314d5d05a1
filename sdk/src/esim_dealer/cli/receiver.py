"""How can a developer see webhooks arrive on this machine? A small receiver; for trial, not for a production load."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from esim_dealer.cli.session import until_stopped
from esim_dealer.errors import MalformedWebhook, WebhookError
from esim_dealer.inbox import Inbox
from esim_dealer.webhook import Event, verify

MAX_EVENT_BYTES = 4 * 1024 * 1024  # an order of 500 profiles, with room


@dataclass(frozen=True, slots=True)
class Report:
    """One request: the event, or why it was refused. `time` is RFC 3339."""

    time: str
    event: Event | None
    verdict: str
    repetition: bool = False


class Receiver(ThreadingHTTPServer):
    """Answers 200 to a verified event, 401 to a wrong signature, 4xx to what is no event; reports each.

    With an inbox, an event is stored before it is answered and reported as new only once, whatever happens in between;
    500 where it cannot be stored.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        secret: str,
        app_key: str | None,
        report: Callable[[Report], None],
        inbox: Inbox | None = None,
    ) -> None:
        super().__init__(address, _Handler)
        self._secret = secret
        self._app_key = app_key
        self._report = report
        self._inbox = inbox
        self._report_lock = Lock()

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host}:{port}/"

    def receive(self, headers: list[tuple[str, str]], body: bytes) -> int:
        """The HTTP status to answer with."""
        try:
            event = verify(headers, body, self._secret, app_key=self._app_key)
        except WebhookError as error:
            status = 400 if isinstance(error, MalformedWebhook) else 401
            self.report(None, f"not verified, answered {status}: {error} [{type(error).__name__}]")
            return status
        if self._inbox is None:
            self.report(event, "verified")
        else:
            return self._store(self._inbox, event)
        return 200

    def report_waiting(self) -> None:
        """Report what was stored and not reported yet."""
        if self._inbox is not None:
            self._inbox.process(lambda event: self.report(event, "verified"))

    def report(self, event: Event | None, verdict: str, *, repetition: bool = False) -> None:
        with self._report_lock:
            self._report(Report(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), event, verdict, repetition))

    def _store(self, inbox: Inbox, event: Event) -> int:
        try:
            new = inbox.receive(event)
        except Exception as error:  # the disk is full, or the file is gone
            self.report(event, f"verified, but answered 500 as it could not be stored: {error}")
            return 500
        if not new:
            self.report(event, "verified, a repetition", repetition=True)
        return 200


def serve(receiver: Receiver) -> None:
    """Receive until Ctrl-C or SIGTERM."""
    with until_stopped():
        receiver.serve_forever(poll_interval=0.1)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"  # the service keeps its connections
    timeout = 75

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(411, "no Content-Length")
        elif int(length) > MAX_EVENT_BYTES:
            self._refuse(413, f"a body of {length} bytes")
        else:
            self._answer(self.server.receive(self.headers.items(), self.rfile.read(int(length))))
            self.server.report_waiting()

    def do_GET(self) -> None:
        self._refuse(405, f"{self.command} instead of POST")

    do_PUT = do_DELETE = do_HEAD = do_PATCH = do_GET

    def _refuse(self, status: int, reason: str) -> None:
        """Refuse without reading the body, and close."""
        self.close_connection = True
        self.server.report(None, f"not verified, answered {status}: {reason}")
        self._answer(status)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the reports say it all."""
