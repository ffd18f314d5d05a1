"""How does a dealer's CSV become orders, one a line? For the dealer: docs/guides/buy-by-csv.md."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dealer_server.rules.catalogue.importing import Fault
from dealer_server.rules.catalogue.package import sold_by_day
from dealer_server.rules.catalogue.stock_file import blank, clipped, records
from dealer_server.rules.orders.priced_lines import Offer

COLUMNS = ("packageCode", "quantity", "periodNum", "remark", "reference", "buyerEmail", "language")
RefuseMail = Callable[[str, str], tuple[str, str] | None]
"""Given an address and a language: the column and what is wrong with it, None where the page can be mailed."""
MOST_ORDERS = 500
MOST_ESIMS = 5_000
REMARK_LENGTH = 255
REFERENCE_LENGTH = 100
_ACCEPTED = ", ".join(COLUMNS)


class BulkLine(NamedTuple):
    """One order of a file. `line` is where it stands, counted from 1; `period_num` None for a fixed package.
    `reference`: the dealer's own, which comes back with the results. `mail`: to whom its install pages are mailed, ""
    for nobody, and `language` in which."""

    line: int
    package_code: str
    quantity: int
    period_num: int | None
    remark: str
    reference: str
    mail: str = ""
    language: str = ""

    def amount(self, price: int) -> int:
        """At the price of one, or of one day."""
        return price * self.quantity * (self.period_num or 1)


class BulkFile(NamedTuple):
    """With a fault nothing should be bought."""

    lines: Sequence[BulkLine]
    faults: Sequence[Fault]


def read(text: str, offer: Callable[[str], Offer | None], refuse_mail: RefuseMail) -> BulkFile:
    """Reads a whole file, its faults included; never an exception, whatever the text. `offer`: a package as the dealer
    may buy it. `refuse_mail`: why no install page can be mailed to this address in this language: the column and the
    message."""
    rows = [(at, cells) for at, cells in records(text.removeprefix("\ufeff")) if not blank(cells)]
    if not rows:
        return BulkFile((), (Fault(1, "", "there is nothing in it"),))
    (at, header), *rows = rows
    if isinstance(header, str):
        return BulkFile((), (Fault(at, "", header),))
    names = [name.strip() for name in header]
    if faults := _header_faults(at, names):
        return BulkFile((), faults)
    if not rows:
        return BulkFile((), (Fault(at, "", "there is no line after the header"),))
    if len(rows) > MOST_ORDERS:
        many = f"there are {len(rows):,} lines; accepted: {MOST_ORDERS} at most. Split the file"
        return BulkFile((), (Fault(rows[MOST_ORDERS][0], "", many),))
    return _read_rows(rows, names, offer, refuse_mail)


def _header_faults(at: int, names: Sequence[str]) -> list[Fault]:
    if "packageCode" not in names:
        for mark, name in ((";", "semicolons"), ("\t", "tabs")):
            if len(names) == 1 and "packageCode" in names[0].split(mark):
                return [Fault(at, "", f"cells are separated by {name}; save the file with commas")]
        return [Fault(at, "packageCode", f"this column is missing; the first line names the columns: {_ACCEPTED}")]
    faults = []
    for number, name in enumerate(names, 1):
        if name in names[: number - 1]:
            faults.append(Fault(at, clipped(name), f"column {number} repeats column {names.index(name) + 1}"))
        elif name not in COLUMNS:
            faults.append(Fault(at, clipped(name), f"column {number} is not known; accepted: {_ACCEPTED}"))
    return faults


def _read_rows(
    rows: Iterable[tuple[int, list[str] | str]],
    names: Sequence[str],
    offer: Callable[[str], Offer | None],
    refuse_mail: RefuseMail,
) -> BulkFile:
    lines, faults = list[BulkLine](), list[Fault]()
    for at, cells in rows:
        if isinstance(cells, str):
            faults.append(Fault(at, "", cells))
        elif len(cells) != len(names):
            faults.append(Fault(at, "", f"this line has {len(cells)} cells, the header has {len(names)}"))
        else:
            cell = dict.fromkeys(COLUMNS, "") | {name: text.strip() for name, text in zip(names, cells, strict=True)}
            if cell["buyerEmail"] and (why := refuse_mail(cell["buyerEmail"], cell["language"])):
                faults.append(Fault(at, *why))
            elif cell["language"] and not cell["buyerEmail"]:
                faults.append(Fault(at, "language", "is that of the mail to buyerEmail, which is empty"))
            if (line := _read_row(at, cell, offer(cell["packageCode"]), faults)) is not None:
                lines.append(line)
    esims = sum([line.quantity for line in lines])
    if not faults and esims > MOST_ESIMS:
        faults.append(Fault(lines[0].line, "quantity", f"these are {esims:,} eSIMs in all; accepted: {MOST_ESIMS:,}"))
    return BulkFile(lines, faults)


def _read_row(at: int, cell: Mapping[str, str], offer: Offer | None, faults: list[Fault]) -> BulkLine | None:
    found = len(faults)
    for name, longest in (("remark", REMARK_LENGTH), ("reference", REFERENCE_LENGTH)):
        if len(cell[name]) > longest:
            faults.append(Fault(at, name, f"has {len(cell[name])} characters; accepted: {longest} at most"))
    if why := _refuse_package(cell["packageCode"], offer):
        faults.append(Fault(at, "packageCode", why))
    quantity = days = None
    if offer is not None:
        package = offer.package
        quantity = _number(at, "quantity", cell["quantity"] or "1", 1, package.max_quantity, faults)
        if sold_by_day(package.data_type):
            days = _number(at, "periodNum", cell["periodNum"], package.min_period_num, package.max_period_num, faults)
        elif cell["periodNum"] not in ("", "1"):
            faults.append(Fault(at, "periodNum", "is for packages that are sold by the day: leave it empty"))
    if len(faults) > found or quantity is None:
        return None
    return BulkLine(
        line=at,
        package_code=cell["packageCode"],
        quantity=quantity,
        period_num=days,
        remark=cell["remark"],
        reference=cell["reference"],
        mail=cell["buyerEmail"],
        language=cell["language"],
    )


def _refuse_package(package_code: str, offer: Offer | None) -> str:
    if not package_code:
        return "is empty"
    if offer is None:
        return f"{clipped(package_code)!r} does not exist"
    if offer.package.type == "TOPUP":
        return f"{package_code} recharges eSIMs: buy it on the page of the eSIM"
    return "" if offer.price is not None else f"{package_code} is not on sale"


def _number(at: int, name: str, cell: str, least: int, most: int, faults: list[Fault]) -> int | None:
    if cell.isascii() and cell.isdigit() and len(cell) <= 9 and least <= int(cell) <= most:
        return int(cell)
    told = f"is {clipped(cell)!r}" if cell else "is empty"
    faults.append(Fault(at, name, f"{told}; accepted: {least} to {most}"))
    return None


def transaction_id(token: str, line: int) -> str:
    """Of the order of a line: the same whenever it is placed."""
    return f"bulk-{token}-{line}"


def seen(prices: Iterable[tuple[int, int | None]]) -> str:
    """32 hex digits that two looks share that showed the same lines at the same prices. `prices`: line and price."""
    text = "\n".join(f"{line} {price}" for line, price in prices)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
