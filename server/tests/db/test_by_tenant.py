"""Statements for rows of many tenants, made into one for one tenant (db/by_tenant.py)."""

import pytest

from dealer_server.db.arrays import batch
from dealer_server.db.by_tenant import (
    OF_ALL,
    at_its_nodes,
    each_at_its_node,
    of_all,
    of_one_tenant,
    of_some_tenants,
    per_tenant,
    rows_of,
    split,
)


def sql_of(sql: str) -> str:
    statement = per_tenant(sql)
    assert statement is not None
    return statement.sql


def test_the_rows_of_a_batch_become_those_of_the_tenant_that_a_parameter_names():
    sql = f"SELECT o.* FROM {batch('key', tenant_id='bigint', order_id='bigint')} JOIN orders o USING (tenant_id)"
    assert sql_of(sql) == (
        "SELECT o.* FROM (SELECT $1::bigint AS tenant_id, given.order_id FROM unnest($2::bigint[])"
        " AS given(order_id)) AS key JOIN orders o USING (tenant_id)"
    )


def test_a_plain_unnest_with_names_is_one_too_wherever_its_tenants_stand():
    sql = (
        "UPDATE r SET x = new.x FROM unnest($2::int[], $3::bigint[]) AS new(x, tenant_id)"
        " WHERE r.tenant_id = new.tenant_id"
    )
    assert sql_of(sql) == (
        "UPDATE r SET x = new.x FROM (SELECT given.x, $3::bigint AS tenant_id FROM unnest($2::int[])"
        " AS given(x)) AS new"
        " WHERE r.tenant_id = $3::bigint AND new.tenant_id = $3::bigint"
    )


def test_rows_that_only_name_tenants_need_no_array():
    assert sql_of("SELECT FROM unnest($1::bigint[]) AS key(tenant_id)") == (
        "SELECT FROM (SELECT $1::bigint AS tenant_id) AS key"
    )


def test_an_ordinal_number_stays_the_last_column():
    assert sql_of("SELECT n FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS key(tenant_id, iccid, n)") == (
        "SELECT n FROM (SELECT $1::bigint AS tenant_id, given.iccid, given.n FROM unnest($2::text[]) WITH ORDINALITY"
        " AS given(iccid, n)) AS key"
    )


@pytest.mark.parametrize("sql", ["SELECT 1", "SELECT FROM unnest($1::text[]) AS key(code)", "SELECT unnest($1::int[])"])
def test_a_statement_without_rows_by_tenant_stays_one(sql: str):
    assert per_tenant(sql) is None


def test_arguments_are_split_in_the_order_of_tenants_and_others_are_kept():
    statement = per_tenant(f"SELECT $3 FROM {batch('key', tenant_id='bigint', order_id='bigint')}")
    assert statement is not None
    assert list(split(statement, [[7, 3, 7], [1, 2, 3], "now"])) == [[3, [2], "now"], [7, [1, 3], "now"]]


def test_no_rows_are_no_statements():
    statement = per_tenant(f"SELECT FROM {batch('key', tenant_id='bigint', order_id='bigint')}")
    assert statement is not None
    assert list(split(statement, [[], []])) == []


def test_a_claim_over_all_tenants_becomes_that_of_one():
    sql = f"WITH due AS (SELECT * FROM t WHERE {OF_ALL} due) UPDATE t x FROM due WHERE x.tenant_id = due.tenant_id"
    assert of_one_tenant(sql, 4) == (
        "WITH due AS (SELECT * FROM t WHERE tenant_id = $4::bigint AND due) UPDATE t x FROM due"
        " WHERE x.tenant_id = $4::bigint AND due.tenant_id = $4::bigint"
    )


def test_a_look_over_all_tenants_becomes_that_of_some():
    assert of_some_tenants(f"SELECT FROM t e WHERE {of_all('e')} due", 2) == (
        "SELECT FROM t e WHERE e.tenant_id = ANY($2::bigint[]) AND due"
    )


def test_a_statement_that_does_not_say_where_is_refused():
    with pytest.raises(AssertionError):
        of_one_tenant("SELECT FROM t", 1)


def test_some_rows_of_each_tenant_are_read_at_its_node():
    sql = (
        "SELECT o.* FROM tenant t CROSS JOIN LATERAL (SELECT * FROM orders o WHERE o.tenant_id = t.tenant_id LIMIT 1) o"
    )
    assert each_at_its_node(sql) == (
        "SELECT o.* FROM tenant t JOIN wallet of_tenant ON t.tenant_id = of_tenant.tenant_id CROSS JOIN LATERAL"
        " (SELECT * FROM orders o WHERE o.tenant_id = of_tenant.tenant_id LIMIT 1) o"
    )
    assert each_at_its_node("SELECT FROM tenant") == "SELECT FROM tenant"


def test_more_of_rows_that_were_found_is_looked_up_at_their_node():
    rows = rows_of("refund", "r", "tenant_id", "refund_id", others=["order_id"])
    found = "SELECT r.tenant_id, i.n FROM (SELECT * FROM refund LIMIT 1) r "
    looked_up = " CROSS JOIN LATERAL (SELECT n FROM order_item i WHERE i.order_id = r.order_id) i ORDER BY r.amount"
    assert each_at_its_node(found + rows + looked_up) == (
        f"{found}JOIN refund at_r ON at_r.tenant_id = r.tenant_id AND at_r.refund_id = r.refund_id"
        f"{looked_up.replace('r.order_id', 'at_r.order_id')}"
    )


def test_a_statement_over_all_or_one_asks_the_node_of_the_one_that_is_given():
    sql = (
        "SELECT o.* FROM tenant t CROSS JOIN LATERAL (SELECT * FROM orders o WHERE o.tenant_id = t.tenant_id LIMIT 1) o"
        " WHERE $2::bigint IS NULL OR t.tenant_id = $2"
    )
    assert at_its_nodes(sql, [7, None]) == each_at_its_node(sql)
    assert at_its_nodes(sql, [7, 10_001]) == (
        "SELECT o.* FROM tenant t CROSS JOIN LATERAL (SELECT * FROM orders o"
        " WHERE o.tenant_id = $2::bigint AND t.tenant_id = $2::bigint LIMIT 1) o WHERE t.tenant_id = $2::bigint"
    )
