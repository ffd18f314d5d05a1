"""`esim-dealer regions | packages`: what can be bought."""

import argparse
import itertools
from typing import get_args

from esim_dealer.cli.arguments import Commands, add_limit, filters, page_size
from esim_dealer.cli.output import volume
from esim_dealer.cli.session import Session
from esim_dealer.wire.vocabulary import DataType, LocationType, PackageType


def add_commands(commands: Commands) -> None:
    command = commands.add("regions", regions, "list countries and regions")
    command.add_argument("--type", choices=get_args(LocationType))
    command.add_argument("--keyword")

    command = commands.add("packages", packages, "list the packages on sale, with your prices")
    command.add_argument("--keyword")
    command.add_argument("--location", metavar="CODE", help="country (ISO 3166-1) or region code")
    command.add_argument("--type", choices=get_args(PackageType))
    command.add_argument("--data-type", choices=get_args(DataType))
    add_limit(command)


def regions(session: Session, options: argparse.Namespace) -> None:
    session.table(
        ("REGION", "NAME", "TYPE", "CONTINENT", "PACKAGES"),
        session.dealer.regions(options.type, options.keyword).regions,
        lambda region: (region.region_code, region.region_name, region.type, region.continent, region.package_count),
    )


def packages(session: Session, options: argparse.Namespace) -> None:
    chosen = filters(
        keyword=options.keyword, location_code=options.location, type=options.type, data_type=options.data_type
    )
    packages = session.dealer.iter_packages(page_size(options.limit), **chosen)
    session.table(
        ("PACKAGE", "NAME", "LOCATION", "DATA TYPE", "DATA", "DURATION", "PRICE", ""),
        itertools.islice(packages, options.limit),
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
