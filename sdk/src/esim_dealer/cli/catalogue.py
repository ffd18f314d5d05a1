"""`esim-dealer regions | packages`: what can be bought."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from typing import Any, get_args

from esim_dealer.cli.arguments import Commands, add_limit, filters, page_size
from esim_dealer.cli.output import volume
from esim_dealer.cli.session import Session
from esim_dealer.wire.calls import Package, Packages
from esim_dealer.wire.vocabulary import DataType, LocationType, PackageType

COUNTRY_LETTERS = 2


def add_commands(commands: Commands) -> None:
    command = commands.add("regions", regions, "list countries and regions")
    command.add_argument("--type", choices=get_args(LocationType))
    command.add_argument("--keyword")

    command = commands.add("packages", packages, "list the packages on sale, with your prices")
    command.add_argument("--keyword")
    command.add_argument("--location", metavar="CODE", help="country (ISO 3166-1) or region code")
    command.add_argument("--type", choices=get_args(PackageType))
    command.add_argument("--data-type", choices=get_args(DataType))
    esim = command.add_mutually_exclusive_group()
    esim.add_argument("--iccid", help="what recharges this eSIM")
    esim.add_argument("--profile", metavar="PROFILE_ID", help="what recharges this eSIM")
    add_limit(command)


def regions(session: Session, options: argparse.Namespace) -> None:
    session.table(
        ("REGION", "NAME", "TYPE", "CONTINENT", "PACKAGES"),
        session.dealer.regions(options.type, options.keyword).regions,
        lambda region: (region.region_code, region.region_name, region.type, region.continent, region.package_count),
    )


def packages(session: Session, options: argparse.Namespace) -> None:
    location: str | None = options.location
    if location and len(location) == COUNTRY_LETTERS:
        location = location.upper()
    chosen = filters(
        keyword=options.keyword,
        location_code=location,
        type=options.type,
        data_type=options.data_type,
        iccid=options.iccid,
        profile_id=options.profile,
    )
    first = session.dealer.packages(page_size=page_size(options.limit), **chosen)
    if location and not first.packages and not session.as_json:
        print("no packages; codes are listed by esim-dealer regions", file=sys.stderr)
        return
    session.table(
        ("PACKAGE", "NAME", "LOCATION", "DATA TYPE", "DATA", "DURATION", "PRICE", ""),
        itertools.islice(_read_on(session, first, page_size(options.limit), chosen), options.limit),
        lambda package: (
            package.package_code,
            package.package_name,
            package.location_code,
            package.data_type,
            volume(package.data_bytes),
            f"{package.duration} {package.duration_unit}",
            package.price,
            package.currency,
        ),
    )
    total = first.pager.total
    if total > options.limit and not session.as_json:
        print(f"{options.limit} of {total}; --limit shows more, --location and --keyword narrow it", file=sys.stderr)


def _read_on(session: Session, page: Packages, size: int, chosen: dict[str, Any]) -> Iterator[Package]:
    """The packages of this page and of those after it."""
    yield from page.packages
    while page.pager.next:
        page = session.dealer.packages(after=page.pager.next, page_size=size, **chosen)
        yield from page.packages
