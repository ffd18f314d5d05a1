"""How does a statement for rows of many tenants run where tables are distributed by tenant (Citus)?

There a statement may lock or change rows of one tenant only, and must name that tenant. So a statement whose rows come
as arrays, one of them of tenant ids, runs once for each tenant, in the order of their ids: `… unnest($1::bigint[],
$2::bigint[]) AS key(tenant_id, order_id)` becomes a row source in which tenant_id is the parameter $1. What it returns
is what all of them returned, one after the other. The text is made once per statement; plain PostgreSQL runs the
statement as it stands (docs/decisions/0060-citus.md).
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

# A row source as `arrays.batch` writes it, or a plain unnest() with named columns.
_BATCH = re.compile(
    r"\(SELECT \* FROM unnest\((?P<arrays>[^()]*)\) AS given\((?P<columns>[^()]*)\) LIMIT cardinality\(\$\d+\)\)"
    r" AS (?P<name>\w+)"
)
_UNNEST = re.compile(
    r"unnest\((?P<arrays>(?:\$\d+::[\w:\[\]]+,?\s*)+)\)(?P<ordinality>\s+WITH\s+ORDINALITY)?"
    r"\s+(?:AS\s+)?(?P<name>\w+)\((?P<columns>[^()]*)\)"
)
_FOUND = re.compile(r"/\* (?P<name>\w+): rows of (?P<table>\w+) by (?P<columns>[\w ]+), (?P<others>[\w ]*) \*/")
_EACH = re.compile(r"\bFROM tenant t CROSS JOIN LATERAL\b")
_COMPARED = re.compile(r"\b(\w+)\.tenant_id = (\w+)\.tenant_id\b")
_ALL_OR_ONE = re.compile(r"\$(\d+)::bigint IS NULL OR ((?:\w+\.)?tenant_id) = \$\1\b")
_ARRAY = re.compile(r"\$(\d+)::([\w:\[\]]+)\[\]")

OF_ALL = "/* of all tenants */"
"""Stands in a statement over all tenants where `tenant_id = …` may be added."""
_OF_ALL = re.compile(r"/\* of all tenants( \w+)? \*/")


def of_all(table: str) -> str:
    """OF_ALL where several tables have a tenant_id."""
    return f"/* of all tenants {table} */"


def rows_of(table: str, name: str, *columns: str, others: Sequence[str] = ()) -> str:
    """Stands behind `FROM found name` in a statement that first finds rows of many tenants, by an order or a limit over
    all of them, and then looks up more of each by LATERAL: these columns are the primary key of a table, and name with
    `others` all that is looked up by. Citus looks up only for rows of a distributed table, not for those found."""
    return f"/* {name}: rows of {table} by {' '.join(columns)}, {' '.join(others)} */"


class PerTenant(NamedTuple):
    """A statement for one tenant, and the rows it was given for many."""

    sql: str
    sources: tuple["Source", ...]


class Source(NamedTuple):
    """Where the rows stand among the arguments, from 0: the array of their tenant ids, and their other arrays."""

    tenant: int
    arrays: tuple[int, ...]


@cache
def per_tenant(sql: str) -> PerTenant | None:
    """None for a statement whose rows are not given by tenant."""
    sources: list[Source] = []

    def replace(found: re.Match[str]) -> str:
        names = [name.strip() for name in found["columns"].split(",")]
        numbered = found.groupdict().get("ordinality") is not None
        typed = _ARRAY.findall(found["arrays"])
        if "tenant_id" not in names or len(typed) != len(names) - numbered:
            return found[0]
        at = names.index("tenant_id")
        sources.append(
            Source(int(typed[at][0]) - 1, tuple(int(number) - 1 for n, (number, _) in enumerate(typed) if n != at))
        )
        return _source(names, typed, at, found["name"], numbered)

    text = _UNNEST.sub(replace, _BATCH.sub(replace, sql))
    return PerTenant(_compared(text, sources[0].tenant + 1), tuple(sources)) if sources else None


def at_its_nodes(sql: str, args: Sequence[Any]) -> str:
    """A statement over all tenants, as each_at_its_node has it; over one where its text has `$1::bigint IS NULL OR
    tenant_id = $1` and this parameter is given: other nodes than that tenant's may be away."""
    parameter = _parameter_of_tenant(sql)
    if parameter is None or args[parameter - 1] is None:
        return each_at_its_node(sql)
    return _of_given_tenant(sql, parameter)


@cache
def _parameter_of_tenant(sql: str) -> int | None:
    found = _ALL_OR_ONE.search(sql)
    return int(found[1]) if found else None


@cache
def _of_given_tenant(sql: str, parameter: int) -> str:
    return of_given_tenant(_ALL_OR_ONE.sub(r"\2 = $\1::bigint", sql), parameter)


def of_given_tenant(sql: str, parameter: int) -> str:
    """A statement whose rows are all of the tenant whose id is this parameter: only its node is asked."""
    return _compared(_FOUND.sub("", sql), parameter)


@cache
def each_at_its_node(sql: str) -> str:
    """A statement that reads some rows of each tenant. `LATERAL (… LIMIT …)` runs at the node of a tenant that comes
    from a distributed table: from wallet, of which each has one row; for rows found before see rows_of."""
    if found := _FOUND.search(sql):
        return each_at_its_node(sql[: found.start()]) + _looked_up(found, sql[found.end() :])
    if not _EACH.search(sql):
        return sql
    compared = sql.replace("= t.tenant_id", "= of_tenant.tenant_id")
    joined = "FROM tenant t JOIN wallet of_tenant ON t.tenant_id = of_tenant.tenant_id CROSS JOIN LATERAL"
    return _EACH.sub(joined, compared)


def _looked_up(found: re.Match[str], rest: str) -> str:
    name, keys = found["name"], found["columns"].split()
    columns = "|".join([*keys, *found["others"].split()])
    on = " AND ".join(f"at_{name}.{key} = {name}.{key}" for key in keys)
    return f"JOIN {found['table']} at_{name} ON {on}" + re.sub(rf"\b{name}\.({columns})\b", rf"at_{name}.\1", rest)


@cache
def of_one_tenant(sql: str, parameter: int) -> str:
    """A statement over all tenants, for the one whose id is this parameter: where its text says OF_ALL."""
    return _compared(_filtered(sql, f"tenant_id = ${parameter}::bigint"), parameter)


@cache
def of_some_tenants(sql: str, parameter: int) -> str:
    """The same for the tenants whose ids this parameter holds."""
    return _filtered(sql, f"tenant_id = ANY(${parameter}::bigint[])")


def _filtered(sql: str, condition: str) -> str:
    text, places = _OF_ALL.subn(lambda found: f"{found[1].strip() + '.' if found[1] else ''}{condition} AND", sql)
    assert places, "the statement does not say where its tenant is to be compared"
    return text


def _compared(sql: str, parameter: int) -> str:
    """All rows are of one tenant, so that each table may be compared with the parameter: Citus looks for a constant,
    and sees none behind a WITH."""
    one = f"${parameter}::bigint"
    return _COMPARED.sub(rf"\g<1>.tenant_id = {one} AND \g<2>.tenant_id = {one}", sql)


def _source(names: Sequence[str], typed: Sequence[tuple[str, str]], at: int, name: str, numbered: bool) -> str:
    """A subquery that the planner pulls up, so that tenant_id is the parameter wherever it is compared."""
    tenant = f"${typed[at][0]}::bigint"
    selected = ", ".join(f"{tenant} AS tenant_id" if n == at else f"given.{column}" for n, column in enumerate(names))
    others = [column for n, column in enumerate(names) if n != at]
    arrays = ", ".join(f"${number}::{kind}[]" for n, (number, kind) in enumerate(typed) if n != at)
    if not arrays:
        return f"(SELECT {tenant} AS tenant_id) AS {name}"
    ordinality = " WITH ORDINALITY" if numbered else ""
    return f"(SELECT {selected} FROM unnest({arrays}){ordinality} AS given({', '.join(others)})) AS {name}"


def split(statement: PerTenant, args: Sequence[Any]) -> Iterator[list[Any]]:
    """The arguments of the statement for each tenant, in the order of tenant ids."""
    tenants = sorted({tenant_id for source in statement.sources for tenant_id in args[source.tenant]})
    for tenant_id in tenants:
        mine = list(args)
        for source in statement.sources:
            chosen = [n for n, other in enumerate(args[source.tenant]) if other == tenant_id]
            mine[source.tenant] = tenant_id
            for position in source.arrays:
                mine[position] = [args[position][n] for n in chosen]
        yield mine
