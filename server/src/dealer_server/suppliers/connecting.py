"""Why could a supplier not be reached? In words for its operator."""

import aiohttp


def why_unreached(error: Exception) -> str:
    """Of an error of aiohttp before anything was sent."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host} is not found"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "the TLS handshake failed"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return f"{error.host}:{error.port} {'refuses connections' if refused else 'cannot be reached'}"
    return "no connection in time"
