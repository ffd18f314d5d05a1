"""Which dealer or package does somebody mean who typed it into a field? (parts.html: lookup)"""

import re
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.operations.errors import OperatorError
from dealer_server.store.search import lookup

NOBODY = -1
_with_number = re.compile(r"(?:.*· )?([0-9]{1,18})", re.DOTALL).fullmatch


class Choice(NamedTuple):
    """`tenant_id`: None where nothing was typed, NOBODY where it means no dealer; `text`: what the field shows;
    `fault`: what is wrong with it."""

    tenant_id: int | None
    text: str
    fault: str = ""

    @property
    def required(self) -> int:
        """Raises OperatorError."""
        if self.fault or self.tenant_id is None:
            raise OperatorError(
                self.fault or "Dealer: nothing is given; accepted is its number or its whole name", "dealer"
            )
        return self.tenant_id


async def dealer(connection: Connection, typed: str | None) -> Choice:
    """By number, by a label such as "Meridian · 10001", or by the whole name."""
    text = (typed or "").strip()
    if not text:
        return Choice(None, "")
    if number := _with_number(text):
        found = await lookup.dealer(connection, int(number[1]))
        if found:
            return Choice(found.tenant_id, found.label)
    named = await lookup.called(connection, text)
    if len(named) == 1:
        return Choice(named[0].tenant_id, named[0].label)
    if named:
        numbers = ", ".join(str(one.tenant_id) for one in named)
        return Choice(NOBODY, text, f"Several dealers are called {text}: give the number, one of {numbers}")
    return Choice(NOBODY, text, f"No dealer {text}. Enter a number such as 10001, or a whole name")


async def package_code(connection: Connection, typed: str | None) -> str:
    """The code of the package of this code or name. Raises OperatorError."""
    text = (typed or "").strip()
    if not text:
        raise OperatorError("Package: nothing is given; accepted is its code or its whole name", "package")
    codes = await lookup.package_codes(connection, text)
    if text in codes or len(codes) == 1:
        return text if text in codes else codes[0]
    if codes:
        raise OperatorError(f"Several packages are called {text}: give the code, one of {', '.join(codes)}", "package")
    raise OperatorError(f"There is no package {text}; accepted is its code or its whole name", "package")
