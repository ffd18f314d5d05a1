"""`esim-dealer login | logout | logins`: the address and keys of a dealer, kept in a file for its owner."""

import argparse
import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from esim_dealer.cli.arguments import Commands
from esim_dealer.cli.session import Session
from esim_dealer.client import APP_KEY, APP_SECRET, URL, Dealer
from esim_dealer.errors import NotConfigured
from esim_dealer.folders import config_file

LOGIN = "ESIM_DEALER_LOGIN"
DEFAULT = "default"
NAMES = (URL, APP_KEY, APP_SECRET)


class Login(msgspec.Struct, frozen=True, rename="camel"):
    """Where a dealer calls, and as whom."""

    url: str
    app_key: str
    app_secret: str

    def __repr__(self) -> str:
        return f"Login({self.url!r}, {self.app_key!r})"


def add_commands(commands: Commands) -> None:
    command = commands.add("login", log_in, "keep address and keys on this machine, so that no export is needed")
    command.add_argument("--url", help="the base address (default: asked for)")
    command.add_argument("--app-key", help="the AppKey (default: asked for)")
    command.epilog = (
        "The AppSecret is asked for, or read from standard input. --login NAME, before the command, or"
        f" {LOGIN} chooses one of several logins. What {URL}, {APP_KEY} and {APP_SECRET} say comes first."
    )
    commands.add("logout", log_out, "forget a login")
    commands.add("logins", logins, "list the logins kept on this machine, without their secrets")


def log_in(session: Session, options: argparse.Namespace) -> None:
    """Checked by a call before it is kept."""
    name = _name(session.environment, options.login)
    made = Login(
        options.url or _asked("base address: "),
        options.app_key or _asked("AppKey: "),
        getpass.getpass("AppSecret: ") if sys.stdin.isatty() else sys.stdin.readline().strip(),
    )
    with Dealer(made.url, made.app_key, made.app_secret, transport=session.transport) as dealer:
        health = dealer.health()
    file = _file(session.environment)
    _write(file, {**_read(file), name: made})
    print(f"{health.client_name}: kept as {name} in {file}", file=sys.stderr)


def log_out(session: Session, options: argparse.Namespace) -> None:
    name, file = _name(session.environment, options.login), _file(session.environment)
    kept = _read(file)
    if kept.pop(name, None) is None:
        raise NotConfigured(f"there is no login {name}")
    _write(file, kept)
    print(f"{name}: forgotten", file=sys.stderr)


def logins(session: Session, _: argparse.Namespace) -> None:
    kept = _read(_file(session.environment))
    rows = [_Row(name, each.url, each.app_key) for name, each in sorted(kept.items())]
    session.table(("LOGIN", "ADDRESS", "APPKEY"), rows, lambda row: (row.login, row.url, row.app_key))


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    login: str
    url: str
    app_key: str


def with_login(environment: Mapping[str, str], login: str | None) -> Mapping[str, str]:
    """The environment with the login that is named, else with the default one if it has no settings of its own.

    Raises NotConfigured where one is named that is not kept.
    """
    named = login or environment.get(LOGIN)
    if not named and any(environment.get(name) for name in NAMES):
        return environment
    found = _read(_file(environment)).get(named or DEFAULT)
    if found is None:
        if named:
            raise NotConfigured(f"there is no login {named}: esim-dealer --login {named} login")
        return environment
    return {**environment, URL: found.url, APP_KEY: found.app_key, APP_SECRET: found.app_secret}


def _name(environment: Mapping[str, str], login: str | None) -> str:
    return login or environment.get(LOGIN) or DEFAULT


def _file(environment: Mapping[str, str]) -> Path:
    return config_file(environment, "logins.json")


def _read(file: Path) -> dict[str, Login]:
    """Raises NotConfigured."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Login])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise NotConfigured(f"{file}: {error}; remove it and log in again") from error


def _write(file: Path, kept: Mapping[str, Login]) -> None:
    """For its owner only, and as a whole or not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        opened.write(msgspec.json.format(msgspec.json.encode(kept)))
    fresh.replace(file)


def _asked(prompt: str) -> str:
    """A line of standard input."""
    if sys.stdin.isatty():
        return input(prompt).strip()
    return sys.stdin.readline().strip()
