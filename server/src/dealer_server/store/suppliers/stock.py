"""Stock: activation codes that an operator loaded. Each is taken once, by the order that pays for it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys, stock_context
from dealer_server.db.session import Session


class LoadedMeanwhile(Exception):
    """Some of these profiles were added to the stock meanwhile."""


class Loaded(NamedTuple):
    iccid: str
    activation_code: str
    digest: bytes


class Taken(NamedTuple):
    profile_id: int
    iccid: str
    activation_code: str


class Free(NamedTuple):
    """The number of free codes locked by package, and the packages of which another transaction may hold more."""

    locked: Mapping[str, int]
    held: frozenset[str]


_LOCK = """
SELECT needed.package_code,
    (SELECT count(*) FROM (SELECT FROM stock_profile s WHERE s.package_code = needed.package_code AND taken_by IS NULL
        ORDER BY iccid LIMIT needed.quantity FOR NO KEY UPDATE{}) free) AS locked,
    (SELECT count(*) FROM (SELECT FROM stock_profile s WHERE s.package_code = needed.package_code AND taken_by IS NULL
        LIMIT needed.quantity) free) AS seen
FROM unnest($1::text[], $2::int[]) AS needed(package_code, quantity)
"""


async def lock(session: Session, quantities: Mapping[str, int], *, wait: bool) -> Free:
    """Locks up to `quantities` free codes by package, in the order of package and ICCID, until the transaction ends;
    without `wait` only those that no other transaction holds."""
    codes = sorted(quantities)
    rows = await session.fetch(
        _LOCK.format("" if wait else " SKIP LOCKED"), codes, [quantities[code] for code in codes]
    )
    locked = {row["package_code"]: row["locked"] for row in rows}
    held = frozenset(row["package_code"] for row in rows if row["locked"] < row["seen"])
    return Free(locked, frozenset() if wait else held)


async def clashes(connection: Connection, loaded: Sequence[Loaded]) -> tuple[set[str], set[bytes]]:
    """The ICCIDs and the activation code digests of these profiles that are in stock already."""
    rows = await connection.fetch(
        "SELECT iccid, code_digest FROM stock_profile WHERE iccid = ANY($1::text[]) OR code_digest = ANY($2::bytea[])",
        [profile.iccid for profile in loaded],
        [profile.digest for profile in loaded],
    )
    return {row["iccid"] for row in rows}, {row["code_digest"] for row in rows}


async def load(connection: Connection, package_code: str, loaded: Sequence[Loaded], keys: DataKeys) -> int:
    """Adds profiles to a package's stock; returns how many are free then. Raises LoadedMeanwhile."""
    written = await connection.fetch(
        "INSERT INTO stock_profile (iccid, package_code, activation_code, code_digest)"
        " SELECT iccid, $1, code, digest FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS new(iccid, code, digest)"
        " ORDER BY iccid ON CONFLICT DO NOTHING RETURNING 1",
        package_code,
        [profile.iccid for profile in loaded],
        [keys.seal(profile.activation_code.encode(), stock_context(profile.iccid)) for profile in loaded],
        [profile.digest for profile in loaded],
    )
    if len(written) < len(loaded):
        raise LoadedMeanwhile
    return await count_free(connection, package_code)


async def count_free(connection: Connection, package_code: str) -> int:
    """The number of profiles of a package that can still be sold."""
    rows = await connection.fetch(
        "SELECT count(*) FROM stock_profile WHERE package_code = $1 AND taken_by IS NULL", package_code
    )
    return rows[0]["count"]


async def count_up_to(connection: Connection, package_codes: Sequence[str], most: int) -> dict[str, int]:
    """How many profiles of each package can still be sold; where it is more than `most`, that."""
    if not package_codes:
        return {}
    rows = await connection.fetch(
        "SELECT package_code, (SELECT count(*) FROM (SELECT FROM stock_profile s"
        " WHERE s.package_code = wanted.package_code AND taken_by IS NULL LIMIT $2) free) AS free"
        " FROM unnest($1::text[]) AS wanted(package_code)",
        package_codes,
        most,
    )
    return {row["package_code"]: row["free"] for row in rows}


async def lock_free(connection: Connection | Session, package_code: str, count: int) -> list[tuple[str, bytes]]:
    """Up to `count` free ICCIDs with their sealed codes, locked; without those that another transaction holds."""
    rows = await connection.fetch(
        "SELECT iccid, activation_code FROM stock_profile WHERE package_code = $1 AND taken_by IS NULL"
        " ORDER BY iccid LIMIT $2 FOR UPDATE SKIP LOCKED",
        package_code,
        count,
    )
    return [(row["iccid"], row["activation_code"]) for row in rows]


async def mark_taken(connection: Connection | Session, taken: Sequence[tuple[str, int, int]], now: datetime) -> None:
    """Marks the codes of (iccid, tenant_id, profile_id) as taken by these profiles."""
    written = await connection.fetch(
        "UPDATE stock_profile s SET taken_tenant_id = new.tenant_id, taken_by = new.profile_id, taken_at = $4"
        " FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS new(iccid, tenant_id, profile_id)"
        " WHERE s.iccid = new.iccid AND s.taken_by IS NULL RETURNING 1",
        *columns(taken, 3),
        now,
    )
    assert len(written) == len(taken), "a locked stock code was taken"


async def taken_codes(
    connection: Connection | Session, profiles: Sequence[tuple[int, int]]
) -> dict[int, tuple[str, bytes]]:
    """(ICCID, sealed code) that these (tenant_id, profile_id) took when they were paid, by profile_id."""
    rows = await connection.fetch(
        "SELECT s.taken_by, s.iccid, s.activation_code FROM unnest($1::bigint[], $2::bigint[])"
        " AS owner(tenant_id, profile_id) JOIN stock_profile s"
        " ON s.taken_tenant_id = owner.tenant_id AND s.taken_by = owner.profile_id",
        *columns(profiles, 2),
    )
    return {row["taken_by"]: (row["iccid"], row["activation_code"]) for row in rows}


async def take(
    connection: Connection | Session,
    package_code: str,
    profiles: Sequence[tuple[int, int]],
    keys: DataKeys,
    now: datetime,
) -> list[Taken]:
    """The codes of these (tenant_id, profile_id): those they took when they were paid. A profile whose line was
    assigned to the stock later has none, and takes a free one as long as there are any."""
    codes = await taken_codes(connection, profiles)
    without = [profile for profile in profiles if profile[1] not in codes]
    if without:
        pairs = list(zip(await lock_free(connection, package_code, len(without)), without, strict=False))
        if pairs:
            await mark_taken(connection, [(iccid, *owner) for (iccid, _), owner in pairs], now)
        codes |= {profile_id: code for code, (_, profile_id) in pairs}
    return [
        Taken(profile_id, iccid, keys.open(sealed, stock_context(iccid)).decode())
        for profile_id, (iccid, sealed) in codes.items()
    ]


async def release(connection: Connection | Session, profiles: Sequence[tuple[int, int]]) -> None:
    """Frees the codes that these (tenant_id, profile_id) took; call it only for codes that were never shown."""
    await connection.fetch(
        "UPDATE stock_profile s SET taken_tenant_id = NULL, taken_by = NULL, taken_at = NULL"
        " FROM unnest($1::bigint[], $2::bigint[]) AS freed(tenant_id, profile_id)"
        " WHERE s.taken_tenant_id = freed.tenant_id AND s.taken_by = freed.profile_id",
        *columns(profiles, 2),
    )


async def supplier_of(connection: Connection, package_code: str) -> str | None:
    """The code of a package's supplier; None if there is no such package."""
    return await connection.fetchval(
        "SELECT document ->> 'supplier' FROM package WHERE package_code = $1", package_code
    )
