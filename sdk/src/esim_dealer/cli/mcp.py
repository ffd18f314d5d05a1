"""`esim-dealer mcp`: the account as tools for an agent, over stdio or HTTP. Needs the extra `mcp`."""

import argparse
import asyncio
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from esim_dealer.cli.arguments import Commands, port, whole_number
from esim_dealer.cli.session import Session, until_stopped
from esim_dealer.client import APP_KEY, APP_SECRET, URL, AsyncDealer
from esim_dealer.errors import NotConfigured
from esim_dealer.folders import state_file
from esim_dealer.order import money

TOKEN = "ESIM_DEALER_MCP_TOKEN"  # noqa: S105  (the variable's name)


def add_commands(commands: Commands) -> None:
    command = commands.add("mcp", mcp, "offer the account to an agent (Model Context Protocol), read-only by default")
    command.add_argument("--allow-writes", action="store_true", help="let it buy, recharge and refund, in two steps")
    command.add_argument(
        "--daily-amount", type=money, default=money("100"), metavar="AMOUNT", help="moved a day at most (default: 100)"
    )
    command.add_argument(
        "--daily-count", type=whole_number(0), default=20, metavar="N", help="actions a day at most (default: 20)"
    )
    command.add_argument(
        "--limits-file", type=Path, metavar="FILE", help="where the day's actions are kept (default: one per AppKey)"
    )
    command.add_argument("--http", action="store_true", help="serve HTTP instead of stdio")
    command.add_argument("--host", default="127.0.0.1", help="with --http (default: 127.0.0.1)")
    command.add_argument("--port", type=port, default=8765, help="with --http; 0: any free one (default: 8765)")
    command.epilog = f"Over HTTP a client sends the token of {TOKEN}; where that is not set, a new one is printed."


def mcp(session: Session, options: argparse.Namespace) -> None:
    """Serve until the client leaves; with --http until Ctrl-C or SIGTERM."""
    try:
        from esim_dealer.mcp import serving  # noqa: F401  (says whether the extra is there)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "esim_dealer":
            raise
        raise NotConfigured(
            f"esim-dealer mcp needs {missing.name}: install the SDK with its extra, `pip install './sdk[mcp]'`"
        ) from missing
    asyncio.run(_serve(session, options))


async def _serve(session: Session, options: argparse.Namespace) -> None:
    from esim_dealer.mcp import serving
    from esim_dealer.mcp.limits import DailyLimits, LimitsUnavailable
    from esim_dealer.mcp.reading import ReadingTools
    from esim_dealer.mcp.trading import TradingTools

    url, app_key, app_secret = (session.setting(name) for name in (URL, APP_KEY, APP_SECRET))
    async with AsyncDealer(url, app_key, app_secret) as dealer:
        trading = None
        if options.allow_writes:
            file = options.limits_file or state_file(session.environment, f"mcp-{app_key}.sqlite")
            limits = DailyLimits(file, options.daily_amount, options.daily_count)
            try:
                limits.check()
            except LimitsUnavailable as unavailable:
                raise NotConfigured(f"{unavailable}; --limits-file names another") from unavailable
            trading = TradingTools(dealer, limits)
        made = serving.server(ReadingTools(dealer), trading)
        if not options.http:
            await made.run_stdio_async()
            return
        token = _token(session.environment)  # refused before the port is taken
        with socket.create_server((options.host, options.port)) as listener:
            host, bound = listener.getsockname()[:2]
            print(f"listening on http://{host}:{bound}{serving.PATH}", file=sys.stderr, flush=True)
            with until_stopped():
                await serving.serve_http(made, listener, token)


def _token(environment: Mapping[str, str]) -> str:
    """The token that clients send; printed where it is a new one. Raises NotConfigured."""
    if given := environment.get(TOKEN):
        return sendable(given)
    made = secrets.token_urlsafe(32)
    print(f"token {made}", file=sys.stderr, flush=True)
    return made


def sendable(token: str) -> str:
    """The token without spaces around it, which no client sends. Raises NotConfigured where clients cannot send it."""
    token = token.strip()
    if not token or any(not "!" <= character <= "~" for character in token):
        raise NotConfigured(
            f"{TOKEN} is no token that clients can send: visible ASCII characters without spaces between"
            " them are accepted; unset it to have one made"
        )
    return token
