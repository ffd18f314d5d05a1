"""What does a command work with? The environment, a Dealer, the way to print, and the way to end."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import httpx2
import msgspec

from esim_dealer.cli.output import cell, print_json, print_table
from esim_dealer.client import APP_KEY, APP_SECRET, URL, Dealer
from esim_dealer.errors import NotConfigured
from esim_dealer.exchange import Credentials
from esim_dealer.wire.envelope import encoder


class Session:
    """The environment, a Dealer that is created when first used, and the way to print."""

    def __init__(self, environment: Mapping[str, str], transport: httpx2.BaseTransport | None, as_json: bool) -> None:
        self.environment = environment
        self.transport = transport
        self.as_json = as_json
        self._dealer: Dealer | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        if self._dealer:
            self._dealer.close()

    @property
    def dealer(self) -> Dealer:
        if self._dealer is None:
            url, app_key, app_secret = (self.setting(name) for name in (URL, APP_KEY, APP_SECRET))
            self._dealer = Dealer(url, app_key, app_secret, transport=self.transport)
        return self._dealer

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.setting(APP_KEY), self.setting(APP_SECRET))

    def setting(self, name: str) -> str:
        value = self.environment.get(name)
        if not value:
            raise NotConfigured(f"set {name} in the environment, or run esim-dealer login")
        return value

    def show(self, struct: msgspec.Struct) -> None:
        """One object: a JSON line, or one aligned line for each field."""
        if self.as_json:
            print_json(struct)
            return
        fields = msgspec.to_builtins(struct)
        width = max(len(name) for name in fields)
        for name, value in fields.items():
            print(f"{name:<{width}}  {cell(value)}")

    def note(self, text: str, **known: object) -> None:
        """What is about to be asked for, with the id to repeat it with: on standard error, with --json as an object."""
        if self.as_json:
            text = encoder.encode(known).decode()
        print(text, file=sys.stderr, flush=True)

    def table(
        self, heads: Sequence[str], structs: Iterable[msgspec.Struct], cells: Callable[[Any], Sequence[object]]
    ) -> None:
        """Many objects: a JSON line each, or an aligned table of what `cells` picks from each."""
        if self.as_json:
            for struct in structs:
                print_json(struct)
        else:
            print_table(heads, [cells(struct) for struct in structs])


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """What runs here ends at SIGINT or SIGTERM; neither is a failure. In the main thread only."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
