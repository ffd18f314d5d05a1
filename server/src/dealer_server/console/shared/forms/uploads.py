"""How does a CSV file get from a form into an operation, and through the page that previews it?"""

import base64
import zlib

MAX_UNPACKED_BYTES = 64 * 1024 * 1024
NOT_CSV = "A CSV file in UTF-8 is needed"
MISSING = "The file is missing. Choose it again"


def decoded(file: bytes) -> str | None:
    """None for an empty file, and for what is no text."""
    try:
        return file.decode("utf-8-sig") or None
    except UnicodeDecodeError:
        return None


def packed(text: str) -> str:
    """A file on its way through a form, from the preview to the import."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def unpacked(packed: str) -> str | None:
    """None for what `packed` did not make."""
    unzip = zlib.decompressobj()
    try:
        return unzip.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES).decode() or None
    except (ValueError, zlib.error):
        return None
