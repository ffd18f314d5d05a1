"""What does a QR code look like that a phone installs an eSIM from?"""

import io

import segno

SCALE, BORDER = 6, 4  # pixels a module; modules of quiet zone


def svg(activation_code: str) -> bytes:
    out = io.BytesIO()
    _code(activation_code).save(out, kind="svg", scale=SCALE, border=BORDER)
    return out.getvalue()


def png(activation_code: str) -> bytes:
    out = io.BytesIO()
    _code(activation_code).save(out, kind="png", scale=SCALE, border=BORDER)
    return out.getvalue()


def _code(activation_code: str) -> segno.QRCode:
    return segno.make(activation_code, error="m", micro=False)
