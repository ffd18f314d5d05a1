"""Packages: on and off sale, the import with a preview of its changes, and stock."""

import base64
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from dealer_server import store
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATORS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Answer, Html, NotFound, Redirect, RequestContext
from dealer_server.operations.catalogue import import_packages
from dealer_server.operations.catalogue import load_stock as stock
from dealer_server.operations.catalogue.import_packages import with_route
from dealer_server.operations.catalogue.set_status import set_package_status
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.package import FIELDS, SUPPLIED_FIELDS, Package, data_text
from dealer_server.rules.money import money
from dealer_server.store.console import packages as console_packages
from dealer_server.store.console.packages import PackageFilter

PACKAGES, IMPORT, STOCK = "/console/packages", "/console/packages/import", "/console/packages/{code}/stock"
STOCK_TEMPLATE = "operator/stock.html"
STATUSES = ("ON_SALE", "OFF_SALE")
FAULTS = 200
CHANGES = 500
MAX_UNPACKED_BYTES = 64 * 1024 * 1024
NOT_CSV = "A CSV file in UTF-8 is needed"


class Change(NamedTuple):
    """What an import changes in a package. `fields`: (name, before, after); none for a new one."""

    package: Package
    new: bool
    fields: Sequence[tuple[str, str, str]]


@page(PACKAGES, OPERATORS, "operator/packages.html", MenuEntry("Packages", "package", 80))
async def packages(context: RequestContext) -> Html:
    query = context.query
    filters = PackageFilter(
        text=params.text(query, "q"),
        status=params.one_of(query, "status", STATUSES),
        place=params.text(query, "region"),
        covers=params.text(query, "covers"),
    )
    async with context.parts.database.connection() as connection:
        rows = await console_packages.list_packages(connection, filters, params.text(query, "before"), PAGE_SIZE + 1)
    following = rows[PAGE_SIZE - 1].package.package_code if len(rows) > PAGE_SIZE else None
    return Html(
        packages=rows[:PAGE_SIZE],
        filters=filters,
        data_text=data_text,
        pager=params.pager(context, PACKAGES, following),
    )


@action(f"{PACKAGES}/status", OPERATOR_ADMINS)
async def set_status(context: RequestContext) -> Redirect:
    code = context.form.get("package", "")
    status = "OFF_SALE" if context.form.get("status") == "OFF_SALE" else "ON_SALE"
    await set_package_status(context.parts.database, [code], status, context.author, lambda: context.now)
    back = params.address(PACKAGES, {name: context.form.get(name) for name in ("q", "region", "covers")})
    return Redirect(back, f"{code} is {'on' if status == 'ON_SALE' else 'off'} sale")


# The import


@page(IMPORT, OPERATOR_ADMINS, "operator/import.html")
async def choose(context: RequestContext) -> Html:
    return Html(columns=importing.COLUMNS)


@action(f"{PACKAGES}/preview", OPERATOR_ADMINS, "operator/import_preview.html")
async def preview(context: RequestContext) -> Answer:
    """What a file would change, or its faults; nothing is written."""
    text = _decoded(context.files.get("file", b""))
    if text is None:
        return Redirect(IMPORT, NOT_CSV, failed=True)
    async with context.parts.database.connection() as connection:
        suppliers = [*SUPPLIED_FIELDS, *await store.supplier.codes(connection)]
        read = importing.read(text, suppliers)
        codes = [package.package_code for package in read.packages]
        before = await console_packages.by_code(connection, codes)
        routes = await store.purchase.routes(connection, codes)
    after = [with_route(package, routes.get(package.package_code, [])) for package in read.packages]
    changes = [change for package in after if (change := _change(before.get(package.package_code), package))]
    return Html(
        faults=read.faults[:FAULTS],
        fault_count=len(read.faults),
        changes=changes[:CHANGES],
        new_count=sum(change.new for change in changes),
        change_count=len(changes),
        package_count=len(after),
        packed="" if read.faults else _packed(text),
    )


def _change(before: Package | None, after: Package) -> Change | None:
    if before is None:
        return Change(after, True, ())
    fields = [
        (name, _field_text(old, name, before.currency), _field_text(new, name, after.currency))
        for name in sorted(FIELDS)
        if (old := getattr(before, name)) != (new := getattr(after, name))
    ]
    return Change(after, False, fields) if fields else None


def _field_text(value: object, name: str, currency: str) -> str:
    """A field as operators write it."""
    if isinstance(value, int) and name in ("price", "retail_price"):
        return money.text(value, currency)
    if isinstance(value, int) and name == "data_bytes":
        return data_text(value)
    if isinstance(value, tuple):
        return ", ".join(place if isinstance(place, str) else place.location_code for place in value)
    return "" if value is None else str(value)


@action(IMPORT, OPERATOR_ADMINS)
async def apply(context: RequestContext) -> Redirect:
    """Writes what was previewed, all or nothing."""
    text = _unpacked(context.form.get("packed", ""))
    if text is None:
        return Redirect(IMPORT, "The file is missing. Choose it again", failed=True)
    imported = await import_packages.import_csv(context.parts.database, text, context.author, lambda: context.now)
    if imported.faults:
        return Redirect(IMPORT, f"{many(len(imported.faults), 'fault')}; nothing was imported", failed=True)
    return Redirect(PACKAGES, f"{many(imported.packages, 'package')}, {imported.changed} of them new or changed")


def _decoded(file: bytes) -> str | None:
    """None for an empty file, and for what is no text."""
    try:
        return file.decode("utf-8-sig") or None
    except UnicodeDecodeError:
        return None


def _packed(text: str) -> str:
    """A file on its way through a form, from the preview to the import."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(packed: str) -> str | None:
    unzip = zlib.decompressobj()
    try:
        return unzip.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES).decode() or None
    except (ValueError, zlib.error):
        return None


# Stock


@page(STOCK, OPERATOR_ADMINS, STOCK_TEMPLATE)
async def choose_stock(context: RequestContext) -> Html:
    return Html(package=await _package(context), report=None)


@action(STOCK, OPERATOR_ADMINS, STOCK_TEMPLATE)
async def load_stock(context: RequestContext) -> Answer:
    """All profiles of the file or, with a report of every fault, none."""
    package, parts = await _package(context), context.parts
    text = _decoded(context.files.get("file", b""))
    if text is None:
        return Redirect(STOCK.format(code=package.package_code), NOT_CSV, failed=True)
    report = await stock.load_stock(parts.database, parts.data_keys, package.package_code, text, context.author)
    return Html(400 if report.faults else 200, package=package, report=report)


async def _package(context: RequestContext) -> Package:
    """Raises NotFound."""
    code = context.path["code"]
    async with context.parts.database.connection() as connection:
        package = (await console_packages.by_code(connection, [code])).get(code)
    if package is None:
        raise NotFound
    return package
