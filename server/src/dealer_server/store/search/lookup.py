"""Which dealer or package does a field mean?"""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.db.connection import Connection


class Dealer(NamedTuple):
    tenant_id: int
    name: str

    @property
    def label(self) -> str:
        """As fields show it."""
        return f"{self.name} · {self.tenant_id}"


async def dealers(connection: Connection, text: str, limit: int) -> list[Dealer]:
    """Those that a part of the name fits, or whose number begins so; the most alike first. All by name for ""."""
    rows = await connection.fetch(
        "SELECT tenant_id, name FROM tenant WHERE position(lower($1) IN lower(name)) > 0"
        " OR starts_with(tenant_id::text, $1)"
        " ORDER BY tenant_id::text <> $1, NOT starts_with(lower(name), lower($1)), lower(name), tenant_id LIMIT $2",
        text,
        limit,
    )
    return [Dealer(**row) for row in rows]


async def dealer(connection: Connection, tenant_id: int) -> Dealer | None:
    row = await connection.fetchrow("SELECT tenant_id, name FROM tenant WHERE tenant_id = $1", tenant_id)
    return Dealer(**row) if row else None


async def called(connection: Connection, name: str) -> list[Dealer]:
    """Those of exactly this name, whatever its case."""
    rows = await connection.fetch(
        "SELECT tenant_id, name FROM tenant WHERE lower(name) = lower($1) ORDER BY tenant_id LIMIT 10", name
    )
    return [Dealer(**row) for row in rows]


async def packages(
    connection: Connection, text: str, limit: int, best: Sequence[str] = ()
) -> Sequence[tuple[str, str]]:
    """(code, name) of those that a part of the code or the name fits; the most alike first, then the `best` in their
    order, then as their list is sorted. All of them for ""."""
    rows = await connection.fetch(
        "SELECT package_code, document ->> 'package_name' AS name FROM package"
        " WHERE position(lower($1) IN lower(package_code)) > 0"
        "  OR position(lower($1) IN lower(document ->> 'package_name')) > 0"
        " ORDER BY package_code <> $1, NOT starts_with(lower(package_code), lower($1)),"
        "  array_position($3::text[], package_code),"
        "  lower(substring(document ->> 'package_name' FROM '^[^0-9]*')), (document ->> 'data_bytes')::bigint,"
        "  (document ->> 'duration')::int, package_code LIMIT $2",
        text,
        limit,
        best,
    )
    return [(row["package_code"], row["name"]) for row in rows]


async def package_codes(connection: Connection, text: str) -> list[str]:
    """The packages of exactly this code or name, whatever its case."""
    rows = await connection.fetch(
        "SELECT package_code FROM package WHERE lower(package_code) = lower($1)"
        " OR lower(document ->> 'package_name') = lower($1) ORDER BY package_code <> $1, package_code LIMIT 10",
        text,
    )
    return [row["package_code"] for row in rows]
