"""What does an install page show? One eSIM with its line and the brand of its dealer."""

from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.rows import columns_of, fields_of
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.rules.brand.brand import Brand
from dealer_server.rules.orders.model import Item, Profile
from dealer_server.store.profiles import plans
from dealer_server.store.tenants import brand


class Installable(NamedTuple):
    """`item` holds no other profile of its line."""

    order_id: int
    item: Item
    profile: Profile
    brand: Brand


_COLUMNS = f"p.order_id, {columns_of(Item, 'profiles', table='i')}, {columns_of(Profile, table='p')}"
# OFFSET 0: each table is looked up by its key, whatever the statistics say.
_PROFILE = """FROM (SELECT * FROM profile WHERE tenant_id = $1 AND profile_id = $2 AND qr_token IS NOT NULL
    AND activation_code IS NOT NULL OFFSET 0) p
CROSS JOIN LATERAL (SELECT * FROM order_item i
    WHERE i.tenant_id = p.tenant_id AND i.order_id = p.order_id AND i.line = p.line OFFSET 0) i"""
FIND = f"""
SELECT {_COLUMNS}, {", ".join(f"b.{name} AS brand_{name}" for name in brand.COLUMNS)}
{_PROFILE}
LEFT JOIN brand b ON b.tenant_id = p.tenant_id
"""
# Where profiles are distributed, brands are a table of the coordinator, and Citus looks for the tenant in each table.
_FIND_AT_NODE = f"SELECT {_COLUMNS} {_PROFILE}".replace("i.tenant_id = p.tenant_id", "i.tenant_id = $1").replace(
    "OFFSET 0", ""
)


async def find(connection: Connection, tenant_id: int, profile_id: int, keys: DataKeys) -> Installable | None:
    """None for a profile that has no codes, as recharges have none."""
    row = await connection.fetchrow(_FIND_AT_NODE if is_distributed(connection) else FIND, tenant_id, profile_id)
    if row is None:
        return None
    columns = dict(row)
    code = keys.open(columns["activation_code"], profile_context(tenant_id, profile_id)).decode()
    columns |= {"activation_code": code, "plans": plans.read(columns["plans"])}
    profile = Profile(**{name: columns[name] for name in fields_of(Profile)})
    item = Item(**{name: columns[name] for name in fields_of(Item, "profiles")}, profiles=(profile,))
    if is_distributed(connection):
        return Installable(columns["order_id"], item, profile, await brand.find(connection, tenant_id))
    return Installable(columns["order_id"], item, profile, brand.from_columns(columns, "brand_"))
