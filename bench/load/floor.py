"""E: what would a signed call cost without us? A bare Starlette endpoint that verifies the same signature.

Run as a program: `python -m bench.load.floor DEALERS.json`, a file of {AppKey: AppSecret}. Says `ready: ADDRESS`.
"""

import hmac
import socket
import sys
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from esim_dealer.wire import signing
from esim_dealer.wire.calls import PREFIX

_ANSWER = b'{"code":"000000","message":"success","data":{}}'


def application(secrets: dict[str, bytes]) -> Starlette:
    async def health(request: Request) -> Response:
        headers, body = request.headers, await request.body()
        app_key = headers["rt-accesscode"]
        expected = signing.signature(
            secrets[app_key], headers["rt-timestamp"].encode(), headers["rt-requestid"].encode(), app_key.encode(), body
        )
        if not hmac.compare_digest(expected, headers["x-signature"]):
            return Response(b"{}", 401)
        return Response(_ANSWER, media_type="application/json")

    return Starlette(routes=[Route(f"{PREFIX}/health", health, methods=["POST"])])


def main() -> None:
    secrets = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=dict[str, str])
    app = application({app_key: secret.encode() for app_key, secret in secrets.items()})
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"ready: http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, http="httptools", loop="uvloop", lifespan="off", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
