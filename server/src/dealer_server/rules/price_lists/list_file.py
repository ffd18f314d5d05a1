"""How does a price list become a CSV, and an operator's CSV the exceptions of a price list?"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.importing import Fault
from dealer_server.rules.catalogue.package import PRICE_MAX, Package
from dealer_server.rules.money import money, percent

COLUMNS = ("packageCode", "packageName", "currency", "packagePrice", "cost", "exception", "price", "margin")
"""`exception` is what is read back, by packageCode; the others are there to be looked at."""
NEEDED = ("packageCode", "exception")
OFF, LIST = "off", "list"


class Line(NamedTuple):
    """A package on a list: amounts in ten-thousandths, `margin` in hundredths of a percent of the price. `excepted`:
    the price is an exception. `price` None: not on sale; `cost` and `margin` None: not known."""

    package: Package
    cost: int | None
    excepted: bool
    price: int | None
    margin: int | None

    @property
    def change(self) -> int | None:
        """By how much the price is above the dealer price, in hundredths of a percent of that."""
        if self.price is None or not self.package.price:
            return None
        return percent.share(self.price - self.package.price, self.package.price)


class Exceptions(NamedTuple):
    """What a file says: by packageCode the line, and the text of the cell, "" where the price follows the markup. With
    a fault nothing should be applied."""

    cells: Mapping[str, tuple[int, str]]
    faults: tuple[Fault, ...]


def write(lines: Iterable[Line], cost_text: Callable[[int], str]) -> str:
    """Encode it as utf-8-sig for spreadsheet programs. The margin is in percent of the price."""
    out = io.StringIO(newline="")
    rows = csv.writer(out, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for package, cost, excepted, price, margin in lines:
        paid = OFF if price is None else money.text(price, package.currency)
        rows.writerow(
            (
                *(package.package_code, package.package_name, package.currency),
                money.text(package.price, package.currency),
                "" if cost is None else cost_text(cost),
                paid if excepted else "",
                paid,
                "" if margin is None else percent.number(margin),
            )
        )
    return out.getvalue()


def read(text: str) -> Exceptions:
    """Reads a whole file, its faults included; never an exception, whatever the text."""
    records = importing.records(text)
    if not records:
        return Exceptions({}, (Fault(1, "", "the file is empty"),))
    (line, header), *rows = records
    if isinstance(header, str):
        return Exceptions({}, (Fault(line, "", header),))
    names = [name.strip() for name in header]
    if faults := _header_faults(line, names):
        return Exceptions({}, faults)
    cells, found = dict[str, tuple[int, str]](), list[Fault]()
    for at, row in rows:
        if isinstance(row, str):
            found.append(Fault(at, "", row))
        elif len(row) != len(names):
            found.append(Fault(at, "", f"this line has {len(row)} cells, the header has {len(names)}"))
        else:
            code, cell = (row[names.index(name)].strip() for name in NEEDED)
            if not code:
                found.append(Fault(at, "packageCode", "must be given"))
            elif code in cells:
                found.append(Fault(at, "packageCode", f"{code[:64]} is already that of line {cells[code][0]}"))
            else:
                cells[code] = at, cell
    return Exceptions(cells, tuple(found))


def parse(cell: str, package: Package) -> int | None:
    """The price that a text says, in ten-thousandths; None: not on sale. ValueError says what is accepted."""
    if cell == OFF:
        return None
    try:
        price = money.parse(cell, package.currency)
    except ValueError as error:
        raise ValueError(f"{error}, or off") from None
    if not 0 < price <= PRICE_MAX:
        raise ValueError("must be more than 0 and at most 1000000000, or off")
    return price


def _header_faults(line: int, names: list[str]) -> tuple[Fault, ...]:
    if len(names) == 1 and ("packageCode;" in names[0] or "packageCode\t" in names[0]):
        return (Fault(line, "", "cells are not separated by commas; save the file with commas"),)
    faults = [Fault(line, name, "this required column is missing") for name in NEEDED if name not in names]
    for number, name in enumerate(names, 1):
        if name in names[: number - 1]:
            faults.append(Fault(line, name[:64], f"column {number} repeats column {names.index(name) + 1}"))
        elif name not in COLUMNS:
            faults.append(Fault(line, name[:64], f"no such column; there are {', '.join(COLUMNS)}"))
    return tuple(faults)
