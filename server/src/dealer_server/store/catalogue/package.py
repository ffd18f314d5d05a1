"""The catalogue: one JSON document per package."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.rules.catalogue.package import Package

KEPT = 8_192  # packages: when one changes, the others of a catalogue as large as that are not decoded again

_decode = msgspec.json.Decoder(Package).decode
_decode_kept = lru_cache(maxsize=KEPT)(_decode)


async def load(connection: Connection) -> tuple[int, list[tuple[Package, datetime]]]:
    """The catalogue's version, and every package with the time of its last change."""
    version: int = await connection.fetchval("SELECT version FROM change WHERE subject = 'catalogue'") or 0
    rows = await connection.fetch(
        "SELECT document::text AS document, updated_at FROM package ORDER BY updated_at DESC, package_code"
    )
    return version, [(_decode_kept(row["document"]), row["updated_at"]) for row in rows]


async def some(connection: Connection | Session, package_codes: Collection[str] | None) -> list[Package]:
    """Those of these packages that exist, as they are stored; None: all."""
    rows = await connection.fetch(
        "SELECT document::text AS document FROM package WHERE $1::text[] IS NULL OR package_code = ANY($1::text[])"
        " ORDER BY package_code",
        None if package_codes is None else list(package_codes),
    )
    return [_decode(row["document"]) for row in rows]


async def put(connection: Connection, packages: Sequence[Package], now: datetime) -> int:
    """Writes packages, new or changed; returns how many differ from before."""
    done = await connection.execute(
        "INSERT INTO package (package_code, document, updated_at)"
        " SELECT *, $3 FROM unnest($1::text[], $2::text[]::jsonb[])"
        " ON CONFLICT (package_code) DO UPDATE SET document = excluded.document, updated_at = excluded.updated_at"
        " WHERE package.document <> excluded.document",
        [package.package_code for package in packages],
        [msgspec.json.encode(package).decode() for package in packages],
        now,
    )
    return int(done.rsplit(" ", 1)[1])
