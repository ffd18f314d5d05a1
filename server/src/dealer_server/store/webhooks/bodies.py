"""How is a webhook's body kept? Compressed, then sealed for its row (docs/decisions/0029-compressed-bodies.md).

With a dictionary of what bodies say, 1.4 KB become a quarter of a kilobyte. The dictionary's number is part of what a
body is sealed for, so a dictionary never changes: a better one is another one.
"""

from importlib import resources

import zstandard

from dealer_server.db.sealing import CannotOpen, DataKeys, delivery_context
from dealer_server.store import webhooks

_NUMBER = 1
_LEVEL = 3
_dictionary = zstandard.ZstdCompressionDict(
    (resources.files(webhooks) / f"dictionary_{_NUMBER}.txt").read_bytes(),
    dict_type=zstandard.DICT_TYPE_RAWCONTENT,
)
_dictionary.precompute_compress(level=_LEVEL)
_compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=_dictionary, write_dict_id=False)
_decompressor = zstandard.ZstdDecompressor(dict_data=_dictionary)


def seal(keys: DataKeys, body: bytes, tenant_id: int, delivery_id: int) -> bytes:
    return keys.seal(_compressor.compress(body), context(tenant_id, delivery_id))


def unseal(keys: DataKeys, sealed: bytes, tenant_id: int, delivery_id: int) -> bytes:
    """The body as it was sent. Raises CannotOpen."""
    try:
        return _decompressor.decompress(keys.open(sealed, context(tenant_id, delivery_id)))
    except CannotOpen:
        return keys.open(sealed, delivery_context(tenant_id, delivery_id))  # kept before bodies were compressed


def context(tenant_id: int, delivery_id: int) -> bytes:
    return b"%s|%d" % (delivery_context(tenant_id, delivery_id), _NUMBER)
