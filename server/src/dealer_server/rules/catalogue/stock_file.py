"""How does an operator's CSV become activation codes? For the operator: docs/guides/stock.md."""

import csv
import hashlib
import io
import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

import msgspec

from dealer_server.rules.catalogue.importing import Fault
from dealer_server.rules.esim import activation_code, iccid
from dealer_server.rules.esim.activation_code import ActivationCode

COLUMNS = ("iccid", "activationCode", "smdpAddress", "matchingId")


class StockProfile(msgspec.Struct, frozen=True):
    """One eSIM of a file. `line` is where its record begins, counted from 1."""

    line: int
    iccid: str
    code: ActivationCode

    @property
    def digest(self) -> bytes:
        """Equal for two codes that install the same eSIM, however they are spelled."""
        return hashlib.sha256(f"{self.code.smdp_address.lower()}${self.code.matching_id}".encode()).digest()


class StockFile(msgspec.Struct, frozen=True):
    """What a file holds. With a fault nothing should be loaded; warnings are worth a look."""

    columns: tuple[str, ...]
    profiles: tuple[StockProfile, ...]
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


def read(text: str) -> StockFile:
    """Reads a whole file, its faults included; never an exception, whatever the text."""
    found = [(at, cells) for at, cells in records(text.removeprefix("\ufeff")) if not blank(cells)]
    if not found:
        return _faulty(Fault(1, "", "the file is empty"))
    (line, header), *rows = found
    if isinstance(header, str):
        return _faulty(Fault(line, "", header))
    names = [name.strip() for name in header]
    if faults := _header_faults(line, header, names):
        return _faulty(*faults)
    if not rows:
        return _faulty(Fault(line, "", "there is no line after the header"))
    return _read_rows(rows, names)


def _faulty(*faults: Fault) -> StockFile:
    return StockFile((), (), faults, ())


def records(text: str) -> Iterator[tuple[int, list[str] | str]]:
    """Each record with the line where it begins; what cannot be read ends the file with a message instead."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            reason = "a quotation mark is never closed" if "end of data" in str(error) else str(error)
            yield line, f"cannot be read as CSV: {reason}; nothing after this line was read"
            return
        if cells is None:
            return
        yield line, cells
        line = reader.line_num + 1


def blank(cells: list[str] | str) -> bool:
    return isinstance(cells, list) and not any(cell.strip() for cell in cells)


def _header_faults(line: int, header: list[str], names: list[str]) -> list[Fault]:
    if not set(names) & set(COLUMNS):
        return [Fault(line, "", _no_header(header))]
    faults = [] if "iccid" in names else [Fault(line, "iccid", "this required column is missing")]
    parts = {"smdpAddress", "matchingId"} & set(names)
    if "activationCode" in names and parts:
        faults.append(Fault(line, min(parts), "goes without activationCode, which already holds it"))
    elif "activationCode" not in names and len(parts) != 2:
        faults.append(Fault(line, "activationCode", "this column is missing, or both smdpAddress and matchingId"))
    for number, name in enumerate(names, 1):
        if name in names[: number - 1]:
            faults.append(Fault(line, clipped(name), f"column {number} repeats column {names.index(name) + 1}"))
        elif name not in COLUMNS:
            faults.append(Fault(line, clipped(name), f"column {number} cannot be used: take it out{_hint(name)}"))
    return faults


def _no_header(cells: list[str]) -> str:
    """Why the first record is no header; spreadsheet programs of many countries part cells otherwise."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) == 1 and set(cells[0].split(mark)) & set(COLUMNS):
            return f"cells are separated by {name}; save the file with commas"
    return "the first line must be the header: iccid,activationCode"


def _hint(name: str) -> str:
    near = get_close_matches(name, COLUMNS, 1)
    return f", or did you mean {near[0]}?" if near else ""


def _read_rows(rows: list[tuple[int, list[str] | str]], names: list[str]) -> StockFile:
    profiles, faults, warnings = list[StockProfile](), list[Fault](), list[Fault]()
    lines_of: dict[str | bytes, int] = {}
    for line, cells in rows:
        if isinstance(cells, str):
            faults.append(Fault(line, "", cells))
        elif len(cells) != len(names):
            faults.append(Fault(line, "", f"this line has {len(cells)} cells, the header has {len(names)}"))
        else:
            found = _read_row(line, {name: cell.strip() for name, cell in zip(names, cells, strict=True)}, faults)
            if found is not None:
                faults += _repeated(found, lines_of, code_column(names))
                warnings += _doubts(found, code_column(names))
                profiles.append(found)
    return StockFile(tuple(names), tuple(profiles), tuple(faults), tuple(warnings))


def code_column(names: Collection[str]) -> str:
    """The column that a fault of the whole code is about."""
    return "activationCode" if "activationCode" in names else "matchingId"


def _read_row(line: int, cells: Mapping[str, str], faults: list[Fault]) -> StockProfile | None:
    digits = code = None
    try:
        digits = iccid.parse(cells["iccid"])
    except ValueError as error:
        faults.append(Fault(line, "iccid", _told(str(error), cells["iccid"])))
    column = code_column(cells)
    try:
        code = activation_code.parse(
            cells["activationCode"]
            if column == "activationCode"
            else f"LPA:1${cells['smdpAddress']}${cells['matchingId']}"
        )
    except ValueError as error:
        faults.append(Fault(line, column, str(error)))
    return StockProfile(line, digits, code) if digits and code else None


def _told(must: str, cell: str) -> str:
    if not cell:
        return f"{must}; it is empty"
    if "$" in cell:  # never repeated: whoever has an activation code has the eSIM
        return f"{must}; an activation code stands here"
    if re.fullmatch(r"[0-9][.,]?[0-9]*[eE]\+?[0-9]+", cell):
        return f"{must}, not {clipped(cell)!r}: a spreadsheet program rounded it; format the column as text"
    return f"{must}, not {clipped(cell)!r}"


def _repeated(found: StockProfile, lines_of: dict[str | bytes, int], column: str) -> Iterator[Fault]:
    first = lines_of.setdefault(found.iccid, found.line)
    if first != found.line:
        yield Fault(found.line, "iccid", f"{found.iccid} is already that of line {first}")
    first = lines_of.setdefault(found.digest, found.line)
    if first != found.line:
        yield Fault(found.line, column, f"is already that of line {first}")


def _doubts(found: StockProfile, column: str) -> Iterator[Fault]:
    if not iccid.is_luhn(found.iccid):
        yield Fault(
            found.line, "iccid", f"the last digit of {found.iccid} is not its check digit (Luhn); a typing error?"
        )
    if found.code.confirmation_code_required:
        yield Fault(found.line, column, "asks for a confirmation code, which dealers are not sent")


def clipped(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:63]}…"
