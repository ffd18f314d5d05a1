"""Activation codes an operator loaded: how many are free, and handing them out, each once."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.store.database import Connection, Session
from dealer_server.store.sealing import DataKeys, stock_context


class Loaded(NamedTuple):
    iccid: str
    activation_code: str
    digest: bytes


class Taken(NamedTuple):
    profile_id: int
    iccid: str
    activation_code: str


async def levels(session: Connection | Session, package_codes: Sequence[str]) -> dict[str, int]:
    """How many profiles of each package can still be sold, locked until the transaction ends."""
    rows = await session.fetch(
        "SELECT package_code, free FROM stock_level WHERE package_code = ANY($1::text[]) ORDER BY package_code"
        " FOR NO KEY UPDATE",
        package_codes,
    )
    return {row[0]: row[1] for row in rows}


async def sell(session: Connection | Session, sold: dict[str, int]) -> None:
    """Takes sold profiles off the levels. The CHECK refuses to go below zero."""
    changed = await session.fetch(
        "UPDATE stock_level SET free = free - sold.n FROM unnest($1::text[], $2::int[]) AS sold(package_code, n)"
        " WHERE stock_level.package_code = sold.package_code RETURNING 1",
        list(sold),
        list(sold.values()),
    )
    assert len(changed) == len(sold), "every package sold has its level"


async def clashes(connection: Connection, loaded: Sequence[Loaded]) -> tuple[set[str], set[bytes]]:
    """Which of these ICCIDs and activation code digests were loaded before."""
    rows = await connection.fetch(
        "SELECT iccid, code_digest FROM stock_profile WHERE iccid = ANY($1::text[]) OR code_digest = ANY($2::bytea[])",
        [one.iccid for one in loaded],
        [one.digest for one in loaded],
    )
    return {row[0] for row in rows}, {row[1] for row in rows}


async def load(connection: Connection, package_code: str, loaded: Sequence[Loaded], keys: DataKeys) -> int:
    """Adds profiles to a package's stock; gives how many are free then. Raises asyncpg.UniqueViolationError."""
    await connection.execute(
        "INSERT INTO stock_profile (iccid, package_code, activation_code, code_digest)"
        " SELECT iccid, $1, code, digest FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS new(iccid, code, digest)"
        " ORDER BY iccid",
        package_code,
        [one.iccid for one in loaded],
        [keys.seal(one.activation_code.encode(), stock_context(one.iccid)) for one in loaded],
        [one.digest for one in loaded],
    )
    rows = await connection.fetch(
        "INSERT INTO stock_level (package_code, free) VALUES ($1, $2) ON CONFLICT (package_code)"
        " DO UPDATE SET free = stock_level.free + excluded.free RETURNING free",
        package_code,
        len(loaded),
    )
    return rows[0][0]


async def free(connection: Connection | Session, package_code: str, wanted: int) -> list[tuple[str, bytes]]:
    """Up to `wanted` ICCIDs with their sealed codes that nobody has, locked; those locked elsewhere are passed over."""
    rows = await connection.fetch(
        "SELECT iccid, activation_code FROM stock_profile WHERE package_code = $1 AND taken_by IS NULL"
        " ORDER BY iccid LIMIT $2 FOR UPDATE SKIP LOCKED",
        package_code,
        wanted,
    )
    return [(row[0], row[1]) for row in rows]


async def hand_out(connection: Connection | Session, taken: Sequence[tuple[str, int, int]], now: datetime) -> None:
    """Marks (iccid, tenant_id, profile_id) as taken, for ever."""
    written = await connection.fetch(
        "UPDATE stock_profile s SET taken_tenant_id = new.tenant_id, taken_by = new.profile_id, taken_at = $4"
        " FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS new(iccid, tenant_id, profile_id)"
        " WHERE s.iccid = new.iccid AND s.taken_by IS NULL RETURNING 1",
        [one[0] for one in taken],
        [one[1] for one in taken],
        [one[2] for one in taken],
        now,
    )
    assert len(written) == len(taken), "a stock profile was handed out meanwhile"


async def take(
    connection: Connection | Session,
    package_code: str,
    wanted: Sequence[tuple[int, int]],
    keys: DataKeys,
    now: datetime,
) -> list[Taken]:
    """Hands a free profile to each (tenant_id, profile_id), as far as they last; never one to two of them."""
    found = await free(connection, package_code, len(wanted))
    pairs = list(zip(found, wanted, strict=False))
    if pairs:
        await hand_out(connection, [(iccid, *owner) for (iccid, _), owner in pairs], now)
    return [
        Taken(profile_id, iccid, keys.open(sealed, stock_context(iccid)).decode())
        for (iccid, sealed), (_, profile_id) in pairs
    ]


async def supplier_of(connection: Connection, package_code: str) -> str | None:
    """Who supplies a package; None where there is no such package."""
    return await connection.fetchval(
        "SELECT document ->> 'supplier' FROM package WHERE package_code = $1", package_code
    )
