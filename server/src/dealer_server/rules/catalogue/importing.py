"""How does an operator's CSV become packages, and packages a CSV? For the operator: docs/guides/catalog-import.md."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from dealer_server.rules.catalogue import package as rules
from dealer_server.rules.catalogue.countries import BUNDLES, COUNTRIES, Bundle, Country
from dealer_server.rules.catalogue.package import SUPPLIED_FIELDS, Package, slug_of, sold_by_day, speed_of
from dealer_server.rules.money import money


class Fault(msgspec.Struct, frozen=True):
    """What is wrong in a file. Where a whole line is to blame, `column` is empty."""

    line: int  # where the record begins, counted from 1
    column: str
    message: str


class Import(msgspec.Struct, frozen=True):
    """What a file holds: the packages without a fault, and every fault. With a fault nothing should be applied.
    `resets`: empty cells that bring a field of a package we have back to its default."""

    packages: tuple[Package, ...]
    faults: tuple[Fault, ...]
    resets: tuple[Fault, ...] = ()


class Kind(NamedTuple):
    """How the cells of a column are read and written; both are also told the line's currency."""

    read: Callable[[str, str], Any]
    write: Callable[[Any, str], str]


class Column(NamedTuple):
    """A column by its header, and the package's field it fills."""

    name: str
    field: str
    kind: Kind
    required: bool = False


def _read_number(cell: str, _: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", cell):
        raise ValueError("must be a whole number")
    return int(cell)


def _read_flag(cell: str, _: str) -> bool:
    if cell.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return cell.lower() == "true"


def _read_list(cell: str, _: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in cell.split(";"))


_TEXT = Kind(lambda cell, _: cell, lambda value, _: value or "")
_NUMBER = Kind(_read_number, lambda value, _: str(value))
_FLAG = Kind(_read_flag, lambda value, _: "true" if value else "false")
_MONEY = Kind(money.parse, money.text)
_DATA = Kind(lambda cell, _: rules.parse_data(cell), lambda value, _: "" if value is None else rules.data_text(value))
_NETWORKS = Kind(lambda cell, _: rules.parse_networks(cell), lambda value, _: rules.networks_text(value))
_LIST = Kind(_read_list, lambda value, _: ";".join(value))
# An empty cell takes the default; where that is not "none", a dash says none.
_TEXT_OR_NONE = Kind(lambda cell, _: "" if cell == "-" else cell, lambda value, _: value or "-")
_LIST_OR_NONE = Kind(
    lambda cell, currency: () if cell == "-" else _read_list(cell, currency), lambda value, _: ";".join(value) or "-"
)

COLUMNS = (
    Column("packageCode", "package_code", _TEXT, required=True),
    Column("slug", "slug", _TEXT),
    Column("packageName", "package_name", _TEXT, required=True),
    Column("description", "description", _TEXT),
    Column("type", "type", _TEXT),
    Column("status", "status", _TEXT),
    Column("locationType", "location_type", _TEXT),
    Column("locationCode", "location_code", _TEXT, required=True),
    Column("locationName", "location_name", _TEXT),
    Column("continent", "continent", _TEXT_OR_NONE),
    Column("locations", "locations", _LIST),
    Column("price", "price", _MONEY, required=True),
    Column("retailPrice", "retail_price", _MONEY),
    Column("currency", "currency", _TEXT, required=True),
    Column("dataType", "data_type", _TEXT, required=True),
    Column("dataBytes", "data_bytes", _DATA),
    Column("fupSpeed", "fup_speed", _TEXT),
    Column("duration", "duration", _NUMBER, required=True),
    Column("durationUnit", "duration_unit", _TEXT),
    Column("minPeriodNum", "min_period_num", _NUMBER),
    Column("maxPeriodNum", "max_period_num", _NUMBER),
    Column("unusedValidDays", "unused_valid_days", _NUMBER),
    Column("activationType", "activation_type", _TEXT),
    Column("speed", "speed", _TEXT_OR_NONE),
    Column("ipExport", "ip_export", _TEXT),
    Column("topUpSupport", "top_up_support", _FLAG),
    Column("topUpMode", "top_up_mode", _TEXT),
    Column("maxQuantity", "max_quantity", _NUMBER),
    Column("networks", "networks", _NETWORKS),
    Column("apn", "apn", _TEXT),
    Column("supportedFields", "supported_fields", _LIST_OR_NONE),
    Column("supplier", "supplier", _TEXT),
)
NAMES = tuple(column.name for column in COLUMNS)
_COLUMNS_MAX = 100
"""More is no spreadsheet with a few faults in its header, but another file."""
_NAME_OF = {column.field: column.name for column in COLUMNS}


class Default(NamedTuple):
    """What an empty cell means, worked out from other fields of its line."""

    field: str
    value: Callable[[Mapping[str, Any]], Any]
    reads: tuple[str, ...] = ()


def _place(
    field: str, country: Callable[[Country], Any], bundle: Callable[[Bundle], Any], other: Any = None
) -> Default:
    """A field of the place: known for countries and the usual bundles, to be given for others unless `other` does."""

    def value(values: Mapping[str, Any]) -> Any:
        code = values["location_code"]
        if code in COUNTRIES:
            return country(COUNTRIES[code])
        if code in BUNDLES:
            return bundle(BUNDLES[code])
        if other is None:
            raise ValueError(f"must be given: {code} is the code of neither a country nor a usual bundle")
        return other

    return Default(field, value, ("location_code",))


_DEFAULTS = (  # in an order in which none reads a later one
    Default("slug", lambda v: slug_of(v["package_code"]), ("package_code",)),
    Default("description", lambda v: ""),
    Default("type", lambda v: "BASE"),
    Default("status", lambda v: "ON_SALE"),
    _place("location_type", lambda country: "COUNTRY", lambda bundle: bundle.location_type, "REGION"),
    _place("location_name", lambda country: country.name, lambda bundle: bundle.name),
    _place("continent", lambda country: country.continent, lambda bundle: bundle.continent, ""),
    _place("locations", lambda country: (country.code,), lambda bundle: bundle.locations),
    Default("retail_price", lambda v: v["price"], ("price",)),
    Default("data_bytes", lambda v: None),
    Default("fup_speed", lambda v: None),
    Default("duration_unit", lambda v: "DAY"),
    Default("min_period_num", lambda v: 1),
    Default(
        "max_period_num",
        lambda v: max(30, v["min_period_num"]) if sold_by_day(v["data_type"]) else 1,
        ("data_type", "min_period_num"),
    ),
    Default("unused_valid_days", lambda v: 180),
    Default("activation_type", lambda v: "FIRST_NETWORK"),
    Default("ip_export", lambda v: ""),
    Default("top_up_support", lambda v: False),
    Default("top_up_mode", lambda v: "ADD"),
    Default("max_quantity", lambda v: 100),
    Default("networks", lambda v: ()),
    Default("apn", lambda v: ""),
    Default("speed", lambda v: speed_of(v["networks"]), ("networks",)),
    Default("supplier", lambda v: "stock"),
    Default("supported_fields", lambda v: SUPPLIED_FIELDS.get(v["supplier"], ()), ("supplier",)),
)


FIXED = ("type", "currency", "data_type")
"""What never changes of a package: orders, prices and plans are of this kind. Another kind is another package."""


def read(
    text: str,
    suppliers: Collection[str] = tuple(SUPPLIED_FIELDS),
    existing: Mapping[str, Package] = MappingProxyType({}),
) -> Import:
    """Read a whole file, its faults included; never an exception, whatever the text.

    `suppliers` are the codes a package may name. Of an `existing` package (by packageCode) the columns that the file
    has are read, and all other fields stay as they are.
    """
    found = records(text)
    if not found:
        return Import((), (Fault(1, "", "the file is empty"),))
    (line, header), *rows = found
    if isinstance(header, str):
        return Import((), (Fault(line, "", header),))
    names = [name.strip() for name in header]
    if len(names) > _COLUMNS_MAX:
        return Import((), (Fault(line, "", f"the header has {len(names)} columns; there are {len(NAMES)}"),))
    if not set(names) & set(NAMES):
        return Import((), (Fault(line, "", _no_header(header)),))
    packages, faults, resets = _read_rows(rows, names, suppliers, existing)
    return Import(tuple(packages), (*_header_faults(line, names, _new(rows, names, existing)), *faults), tuple(resets))


def codes(text: str) -> dict[str, int]:
    """The packageCodes that stand in a file, each with its first line, so that `existing` can be looked up; whatever
    else is wrong with the file."""
    lines = [(line, cells) for line, cells in records(text) if isinstance(cells, list)]
    names = [name.strip() for name in lines[0][1]] if lines else []
    found = dict[str, int]()
    if "packageCode" in names:
        at = names.index("packageCode")
        for line, cells in lines[1:]:
            if len(cells) > at and "\0" not in cells[at]:
                found.setdefault(cells[at].strip(), line)
    return found


def read_form(
    cells: Mapping[str, str], suppliers: Collection[str], existing: Package | None
) -> tuple[Package | None, dict[str, str]]:
    """A package whose columns were typed one by one: the package, None where something is wrong, and what is wrong with
    each column. Columns that are not given stay as they are in `existing`."""
    cells = {name: _plain(cell) for name, cell in cells.items()}
    if existing is None:
        cells = {column.name: "" for column in COLUMNS if column.required} | cells
    values, wrong = _read_row(cells, suppliers, existing)
    return (None if wrong else _package(values, existing)), {_NAME_OF[field]: must for field, must in wrong.items()}


def texts(package: Package) -> dict[str, str]:
    """Each column of a package, as a file has it."""
    return {column.name: column.kind.write(getattr(package, column.field), package.currency) for column in COLUMNS}


def differences(before: Package, after: Package) -> list[tuple[str, str, str]]:
    """(column, before, after) of each column that differs."""
    old, new = texts(before), texts(after)
    return [(name, old[name], new[name]) for name in NAMES if old[name] != new[name]]


def write(packages: Iterable[Package]) -> str:
    """The packages as a file that `read` takes back unchanged. Encode it as utf-8-sig for spreadsheet programs."""
    out = io.StringIO(newline="")
    rows = csv.writer(out, lineterminator="\r\n")
    rows.writerow(NAMES)
    rows.writerows(list(texts(package).values()) for package in packages)
    return out.getvalue()


def records(text: str) -> list[tuple[int, list[str] | str]]:
    """The cells of each record that is not blank, with the line where it begins. What cannot be read ends the file with
    a message instead."""
    return [(line, cells) for line, cells in _records(text.removeprefix("\ufeff")) if not _blank(cells)]


def _records(text: str) -> Iterator[tuple[int, list[str] | str]]:
    """Each record with the line where it begins; what cannot be read ends the file with a message instead."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield line, _unreadable(str(error))
            return
        if cells is None:
            return
        yield line, cells
        line = reader.line_num + 1


def _unreadable(error: str) -> str:
    if error == "unexpected end of data":
        error = "a quotation mark is never closed"
    if error.startswith("field larger"):
        error = f"a cell is longer than {csv.field_size_limit()} characters"
    return f"cannot be read as CSV: {error}; nothing after this line was read"


def _blank(cells: list[str] | str) -> bool:
    return isinstance(cells, list) and not any(cell.strip() for cell in cells)


def _no_header(cells: list[str]) -> str:
    """Why the first record is no header; spreadsheet programs of many countries part cells otherwise."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) == 1 and set(cells[0].split(mark)) & set(NAMES):
            return f"cells are separated by {name}; save the file with commas"
    return f"the first line must be the header: {','.join(column.name for column in COLUMNS if column.required)},…"


def _new(
    rows: list[tuple[int, list[str] | str]], names: list[str], existing: Mapping[str, Package]
) -> tuple[int, str] | None:
    """The line and code of the first package that is new; line 0 where nothing exists."""
    if not existing or "packageCode" not in names:
        return 0, ""
    at = names.index("packageCode")
    found = ((line, cells[at].strip()) for line, cells in rows if isinstance(cells, list) and len(cells) > at)
    return next(((line, code) for line, code in found if code not in existing), None)


def _header_faults(line: int, names: list[str], new: tuple[int, str] | None) -> Iterator[Fault]:
    """`new`: a package that needs all required columns; None: there is none."""
    for column in COLUMNS:
        if column.required and column.name not in names and new is not None:
            why = f": {_clipped(new[1])} of line {new[0]} is no package yet" if new[0] else ""
            yield Fault(line, column.name, f"this required column is missing{why}")
    first_column = dict[str, int]()
    for number, name in enumerate(names, 1):
        first = first_column.setdefault(name, number)
        if not name:
            yield Fault(line, "", f"column {number} has no name")
        elif first != number:
            yield Fault(line, _clipped(name), f"column {number} repeats column {first}")
        elif name not in NAMES:
            near = get_close_matches(name, NAMES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield Fault(line, _clipped(name), f"no such column{hint}")


def _read_rows(
    rows: list[tuple[int, list[str] | str]],
    names: list[str],
    suppliers: Collection[str],
    existing: Mapping[str, Package],
) -> tuple[list[Package], list[Fault], list[Fault]]:
    """Packages, faults, and what empty cells reset."""
    packages, faults, resets = list[Package](), list[Fault](), list[Fault]()
    first_line = dict[tuple[str, str], int]()
    for line, cells in rows:
        if isinstance(cells, str):
            faults.append(Fault(line, "", cells))
        elif len(cells) != len(names):
            faults.append(Fault(line, "", f"this line has {len(cells)} cells, the header has {len(names)}"))
        else:
            given = dict(zip(names, map(_plain, cells), strict=True))
            before = existing.get(given.get("packageCode", ""))
            values, wrong = _read_row(given, suppliers, before)
            wrong |= _repeated(values, line, first_line)
            faults += [Fault(line, _NAME_OF[field], wrong[field]) for field in _NAME_OF if field in wrong]
            if len(values) == len(COLUMNS) and not wrong:
                packages.append(_package(values, before))
                resets += _resets(line, given, before, packages[-1])
    return packages, faults, resets


def _package(values: Mapping[str, Any], before: Package | None) -> Package:
    """What is no field of a file stays as it is."""
    return Package(**values) if before is None else msgspec.structs.replace(before, **values)


def _resets(line: int, cells: Mapping[str, str], before: Package | None, after: Package) -> Iterator[Fault]:
    if before is not None:
        for name, was, now in differences(before, after):
            if cells.get(name) == "":
                told = f"{_clipped(was)} becomes {_clipped(now)}" if now else f"{_clipped(was)} is removed"
                yield Fault(line, name, f"the cell is empty: {told}")


def _read_row(
    cells: Mapping[str, str], suppliers: Collection[str], existing: Package | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of one package that make sense, and the words for those that do not.

    Rules are asked before the defaults are filled in too, so that no default is worked out from nonsense.
    """
    values, wrong = _read_cells(cells, existing)
    _drop_broken(values, wrong, suppliers)
    _fill_defaults(values, wrong)
    _drop_broken(values, wrong, suppliers)
    return values, {field: _told(must, cells.get(_NAME_OF[field], "")) for field, must in wrong.items()}


def _read_cells(cells: Mapping[str, str], existing: Package | None) -> tuple[dict[str, Any], dict[str, str]]:
    """What the cells say by themselves, or what stands in the package where there is no cell. Amounts wait for a
    currency that is one."""
    values, wrong = dict[str, Any](), dict[str, str]()
    currency = cells.get("currency", "" if existing is None else existing.currency)
    for column in COLUMNS:
        cell = cells.get(column.name)
        if cell is None and existing is not None:
            values[column.field] = getattr(existing, column.field)
        elif not cell:
            if column.required and cell is not None:
                wrong[column.field] = "must be given"
        elif column.kind is not _MONEY or currency in money.EXPONENTS:
            try:
                values[column.field] = column.kind.read(cell, currency)
            except ValueError as error:
                wrong[column.field] = str(error)
    _keep_fixed(values, wrong, existing)
    return values, wrong


def _keep_fixed(values: dict[str, Any], wrong: dict[str, str], existing: Package | None) -> None:
    for field in FIXED:
        if existing is not None and field in values and values[field] != getattr(existing, field):
            del values[field]
            wrong[field] = f"must stay {getattr(existing, field)}: it never changes"


def _fill_defaults(values: dict[str, Any], wrong: dict[str, str]) -> None:
    for default in _DEFAULTS:
        if default.field not in values | wrong and all(field in values for field in default.reads):
            try:
                values[default.field] = default.value(values)
            except ValueError as error:
                wrong[default.field] = str(error)


_NOTHING: dict[str, Any] = dict.fromkeys(rules.FIELDS)
"""So that rules can look at a package of which only some fields are known."""


def _drop_broken(values: dict[str, Any], wrong: dict[str, str], suppliers: Collection[str]) -> None:
    """Move the fields that break a rule from `values` to `wrong`."""
    broken = dict(rules.faults(Package(**_NOTHING | values), values.keys()))
    if "supplier" in values and values["supplier"] not in suppliers:
        broken["supplier"] = f"must be one of {', '.join(suppliers)}"
    for field in broken:
        del values[field]
    wrong |= broken


def _repeated(values: Mapping[str, Any], line: int, first_line: dict[tuple[str, str], int]) -> dict[str, str]:
    """The code or address that an earlier line has already."""
    for field in ("package_code", "slug"):
        if field in values:
            first = first_line.setdefault((field, values[field]), line)
            if first != line:
                return {field: f"{_clipped(values[field])} is already that of line {first}"}
    return {}


def _plain(cell: str) -> str:
    """A cell without the blanks around it, its line breaks as one sign."""
    return cell.replace("\r\n", "\n").replace("\r", "\n").strip()


def _told(must: str, cell: str) -> str:
    return f"{must}, not {_clipped(cell)!r}" if cell else must


def _clipped(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:63]}…"
