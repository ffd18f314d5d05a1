"""A receiver with a certificate of its own."""

import asyncio
import ssl
from pathlib import Path

from support.webhook_fixture import OK


async def tls_server(certificate: Path, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> tuple[asyncio.Server, int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = newest
    context.set_ciphers("ALL:@SECLEVEL=0")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(OK)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    return server, server.sockets[0].getsockname()[1]
