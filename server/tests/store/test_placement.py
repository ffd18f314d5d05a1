"""Has each table a place on a cluster, and can those with their tenant be distributed?
(store/distribution/placement.py, docs/decisions/0060-citus.md)"""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg
import pytest

from dealer_server.store.distribution.placement import APART, BY_TENANT, IDENTITIES, ON_EVERY_NODE, UNIQUE_OVER_ALL

pytestmark = pytest.mark.one_server("it looks at the schema as migrations leave it")

# The rest: plain tables of the coordinator. What writes to one of them and to a node commits in two phases.
ON_THE_COORDINATOR = {
    *("audit_checkpoint", "audit_checkpoint_order", "audit_checkpoint_wallet", "audit_head", "audit_log"),
    *("brand", "credential_use", "data_key", "dealer_draft", "first_run", "invitation", "price_list_exception"),
    *("bulk_line", "bulk_order", "order_note"),
    *("console_form", "console_kept_form", "console_session", "console_try", "console_unsent_form", "console_user"),
    "console_view",
    *("dev_mail", "mail_confirmation", "password_reset", "search_page", "search_progress"),
    *("notice", "notice_condition", "notice_content", "notice_delivery", "notice_mark", "notice_setting", "notice_url"),
    *("overview_hour", "report_all", "report_day", "report_rebuild", "report_sum", "wallet_day"),
    *("refused_call", "refused_count", "served_call", "served_count", "call_hour", "tenant_change"),
    *("retention", "retention_cursor", "retention_postponed"),
    *("iccid_range", "route", "stock_profile", "supplier_event", "supplier_health", "supplier_outage"),
    *("rt_validity", "webhook_hour", "webhook_job"),
}
PLACES = {
    "BY_TENANT": set(BY_TENANT),
    "ON_EVERY_NODE": set(ON_EVERY_NODE),
    "APART": APART - {"distribution"},  # `distribute` makes it
    "ON_THE_COORDINATOR": ON_THE_COORDINATOR,
}
WHERE = (
    "what grows with orders goes into BY_TENANT of placement.py; a table of the coordinator into the list of this test"
)


class Index(NamedTuple):
    on: str
    name: str
    columns: Sequence[str | None]


class Key(NamedTuple):
    """A foreign key. `columns`: pairs of the child's and the parent's, `tenant_id=tenant_id`."""

    child: str
    parent: str
    columns: Sequence[str]


# Partitions stand with their table.
TABLES = """
SELECT relname::text AS name FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
IDENTITY_COLUMNS = """
SELECT attrelid::regclass::text AS on, attname::text AS name FROM pg_attribute
WHERE attidentity <> '' AND attrelid::regclass::text = ANY($1::text[])
"""
UNIQUE_INDEXES = """
SELECT indrelid::regclass::text AS on, indexrelid::regclass::text AS name,
    array(SELECT a.attname::text FROM unnest(indkey) number LEFT JOIN pg_attribute a
        ON a.attrelid = indrelid AND a.attnum = number) AS columns
FROM pg_index WHERE indisunique AND indrelid::regclass::text = ANY($1::text[])
"""
FOREIGN_KEYS = """
SELECT conrelid::regclass::text AS child, confrelid::regclass::text AS parent,
    array(SELECT c.attname || '=' || p.attname FROM unnest(conkey, confkey) AS pair(child, parent)
        JOIN pg_attribute c ON c.attrelid = conrelid AND c.attnum = pair.child
        JOIN pg_attribute p ON p.attrelid = confrelid AND p.attnum = pair.parent) AS columns
FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace
"""


async def rows(url: str, sql: str, *arguments: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(sql, *arguments)
    finally:
        await connection.close()


async def test_each_table_stands_in_one_list(database_url: str):
    tables = {row["name"] for row in await rows(database_url, TABLES)}
    listed = set().union(*PLACES.values())
    assert not tables - listed, f"{sorted(tables - listed)}: {WHERE}"
    assert not listed - tables, f"listed, but not there: {sorted(listed - tables)}"
    assert sum(map(len, PLACES.values())) == len(listed), "a table stands in two lists"


async def test_each_identity_of_a_table_by_tenant_becomes_a_sequence(database_url: str):
    found = {row["on"]: row["name"] for row in await rows(database_url, IDENTITY_COLUMNS, list(BY_TENANT))}
    assert found == IDENTITIES, "IDENTITIES of placement.py has each identity column of the tables in BY_TENANT"


async def test_each_unique_index_of_a_table_by_tenant_holds_its_tenant(database_url: str):
    indexes = [Index(**row) for row in await rows(database_url, UNIQUE_INDEXES, list(BY_TENANT))]
    assert {index.on for index in indexes} == set(BY_TENANT), "a table has no primary key"
    without = {index.name for index in indexes if "tenant_id" not in index.columns}
    assert without == set(UNIQUE_OVER_ALL), "one node cannot check it: tenant_id belongs into the index"


async def test_foreign_keys_of_tables_by_tenant_stay_on_one_node(database_url: str):
    keys = [Key(**row) for row in await rows(database_url, FOREIGN_KEYS)]
    for key in keys:
        if key.child in BY_TENANT and key.parent in BY_TENANT:
            assert "tenant_id=tenant_id" in key.columns, f"{key}: tenant_id belongs into the key"
            assert BY_TENANT.index(key.parent) <= BY_TENANT.index(key.child), f"{key}: parents stand before children"
        elif key.child in BY_TENANT:
            assert key.parent in ON_EVERY_NODE, f"{key}: the parent is not on the node"
    to_a_node = [key for key in keys if key.child not in BY_TENANT and key.parent in BY_TENANT]
    assert not to_a_node, "a table of the coordinator does not refer to one by tenant"
