"""How does an agent reach the tools? By stdio, or by HTTP with a token."""

import functools
import hmac
import inspect
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import esim_dealer
from esim_dealer.errors import DealerError
from esim_dealer.mcp.limits import LimitReached, LimitsUnavailable
from esim_dealer.mcp.reading import ReadingTools
from esim_dealer.mcp.trading import TradingTools

PATH = "/mcp"
_INSTRUCTIONS = (
    "The account of one dealer who buys eSIM data packages from a prepaid wallet. Amounts are decimal strings in major"
    " units of the wallet's currency; an eSIM is named by its ICCID or its profileId."
)
_TRADING = (
    " Orders, recharges and refunds take two steps: a preview tool shows price and balance; show these to the person,"
    " and call confirm only once they have agreed."
)
_READ_ONLY = " Nothing can be bought or refunded here."


def server(reading: ReadingTools, trading: TradingTools | None) -> MCPServer[Any]:
    """The tools that look, and those that move money where there are any."""
    tools = [_tool(tool, read_only=True) for tool in reading.tools]
    if trading:
        tools += [_tool(tool, read_only=tool.__name__ != "confirm") for tool in trading.tools]
    return MCPServer(
        "esim-dealer",
        version=esim_dealer.__version__,
        instructions=_INSTRUCTIONS + (_TRADING if trading else _READ_ONLY),
        log_level="WARNING",
        tools=tools,
    )


def _tool(tool: Callable[..., Awaitable[dict[str, Any]]], *, read_only: bool) -> Tool:
    """Arguments that it does not have are refused: a filter with another name would otherwise mean everything."""
    annotations = ToolAnnotations(read_only_hint=read_only, destructive_hint=not read_only, idempotent_hint=True)
    made = Tool.from_function(_explained(tool), description=inspect.getdoc(tool), annotations=annotations)
    arguments = made.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    made.parameters = arguments.model_json_schema(by_alias=True)
    return made


def _explained(tool: Callable[..., Awaitable[dict[str, Any]]]) -> Callable[..., Awaitable[dict[str, Any]]]:
    """What the agent can act on reaches it as text; anything else is a defect, and is logged."""

    @functools.wraps(tool)
    async def explained(*arguments: Any, **named: Any) -> dict[str, Any]:
        try:
            return await tool(*arguments, **named)
        except (DealerError, LimitReached, LimitsUnavailable, ValueError) as error:
            raise ToolError(str(error)) from error

    return explained


async def serve_http(made: MCPServer[Any], listener: socket.socket, token: str) -> None:
    """Until SIGINT or SIGTERM. `token`: visible ASCII characters, which clients can send."""
    host = listener.getsockname()[0]
    app = _RequiresToken(made.streamable_http_app(streamable_http_path=PATH, host=host), token)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


class _RequiresToken:
    """401 to a request without `Authorization: Bearer <token>`."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._expected):
                refused = JSONResponse({"error": "a token is needed: Authorization: Bearer <token>"}, 401)
                refused.headers["WWW-Authenticate"] = "Bearer"
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)
