"""Which eSIMs does a recharge fit, as far as earlier ones have shown?

The statement that writes recharges is given it (docs/decisions/0030-recharges.md, 7), so that no rule of the catalogue
stands in SQL.
"""

from collections.abc import Iterable

from dealer_server.rules.orders.priced_lines import OrderLine
from dealer_server.rules.recharges import recharge
from dealer_server.rules.recharges.recharge import Fit, Target, Wanted
from dealer_server.suppliers import registry

MOST_PACKAGES = 10_000
MOST_BASES = 8


class KnownFits:
    """The packages of the eSIMs that were recharged with each TOPUP package: the last eight of each."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Fit] = {}

    def add(self, line: OrderLine, target: Target) -> None:
        """A recharge of this eSIM was accepted, with the supplier that its package has."""
        key = line.package_code, line.supplier
        known = self._known.get(key)
        bases = known.bases.split(",") if known is not None and known.kind == target.kind else []
        if target.package_code in bases:
            return
        self._known[key] = Fit(target.kind, ",".join([*bases, target.package_code][-MOST_BASES:]))
        if len(self._known) > MOST_PACKAGES:
            del self._known[next(iter(self._known))]

    def find(self, asked: Iterable[tuple[Wanted, OrderLine]]) -> list[Fit | None]:
        """Of each recharge of a batch the eSIMs that it fits as the catalogue is now, or None where none is known."""
        found: dict[tuple[str, str, int | None, int], Fit | None] = {}
        fits: list[Fit | None] = []
        for wanted, line in asked:
            key = line.package_code, line.supplier, wanted.period_num, id(wanted.package)
            if key not in found:  # recharges with one package are alike
                found[key] = self._find(wanted, line)
            fits.append(found[key])
        return fits

    def _find(self, wanted: Wanted, line: OrderLine) -> Fit | None:
        known = self._known.get((line.package_code, line.supplier))
        package = wanted.package
        if known is None or package is None or not registry.caps_of(known.kind).recharges:
            return None
        bases = known.bases.split(",")
        fitting = [base for base in bases if recharge.refuse_base(wanted, package, base) is None]
        return known._replace(bases=",".join(fitting)) if fitting else None
