"""What is sold: packages on and off sale, an import with a preview of what it changes, and stock."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dealer_server import store
from dealer_server.console.operator import permissions
from dealer_server.console.operator.permissions import LOOK, PAGE, TERMS
from dealer_server.console.shared import params
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Answer, NotFound, Page, Redirect, RequestContext, Route
from dealer_server.operations.catalogue import import_packages
from dealer_server.operations.catalogue import load_stock as stock
from dealer_server.operations.catalogue.import_packages import with_route
from dealer_server.operations.catalogue.set_status import set_package_status
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.package import FIELDS, SUPPLIED_FIELDS, Package, data_text
from dealer_server.rules.money import money
from dealer_server.store.console import packages as console_packages
from dealer_server.store.console.packages import Wanted

STATUSES = ("ON_SALE", "OFF_SALE")
FAULTS = 200
CHANGES = 500
UNPACKED = 64 * 1024 * 1024


class Change(NamedTuple):
    """What an import makes of a package. `fields`: name, before, after; empty for a new one."""

    package: Package
    new: bool
    fields: Sequence[tuple[str, str, str]]


async def packages(context: RequestContext) -> Page:
    query = context.query
    status = params.one_of(query, "status", STATUSES)
    wanted = Wanted(params.text(query, "q"), status, params.text(query, "region"), params.text(query, "covers"))
    async with context.parts.database.connection() as connection:
        found = await console_packages.page(connection, wanted, params.text(query, "before"), PAGE + 1)
    following = found[PAGE - 1].package.package_code if len(found) > PAGE else None
    return permissions.page(
        context,
        "packages",
        packages=found[:PAGE],
        wanted=wanted,
        data_text=data_text,
        pager=params.pager(context, "/console/packages", following),
    )


async def set_status(context: RequestContext) -> Answer:
    code, status = (
        context.form.get("package", ""),
        "OFF_SALE" if context.form.get("status") == "OFF_SALE" else "ON_SALE",
    )
    await set_package_status(context.parts.database, [code], status, context.author, lambda: context.now)
    back = params.address("/console/packages", {name: context.form.get(name) for name in ("q", "region", "covers")})
    return Redirect(back, f"{code} is {'on' if status == 'ON_SALE' else 'off'} sale")


# The import


async def choose(context: RequestContext) -> Page:
    return permissions.page(context, "import", columns=importing.COLUMNS)


async def preview(context: RequestContext) -> Answer:
    """What a file would change, or its faults; nothing is written."""
    text = _text(context.files.get("file", b""))
    if text is None:
        return Redirect("/console/packages/import", "A CSV file in UTF-8 is needed", failed=True)
    async with context.parts.database.connection() as connection:
        known = [*SUPPLIED_FIELDS, *await store.supplier.codes(connection)]
        read = importing.read(text, known)
        codes = [one.package_code for one in read.packages]
        before = await console_packages.named(connection, codes)
        routes = await store.purchase.routes(connection, codes)
    after = [with_route(one, routes.get(one.package_code, [])) for one in read.packages]
    changes = [change for one in after if (change := _change(before.get(one.package_code), one))]
    return permissions.page(
        context,
        "import_preview",
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
        (name, _said(was, name, before.currency), _said(now, name, after.currency))
        for name in sorted(FIELDS)
        if (was := getattr(before, name)) != (now := getattr(after, name))
    ]
    return Change(after, False, fields) if fields else None


def _said(value: object, name: str, currency: str) -> str:
    """A field as operators write it."""
    if isinstance(value, int) and name in ("price", "retail_price"):
        return money.text(value, currency)
    if isinstance(value, int) and name == "data_bytes":
        return data_text(value)
    if isinstance(value, tuple):
        return ", ".join(one if isinstance(one, str) else one.location_code for one in value)
    return "" if value is None else str(value)


async def apply(context: RequestContext) -> Answer:
    """Writes what was previewed, all or nothing."""
    text = _unpacked(context.form.get("packed", ""))
    if text is None:
        return Redirect("/console/packages/import", "The file got lost: choose it again", failed=True)
    imported = await import_packages.import_csv(context.parts.database, text, context.author, lambda: context.now)
    if imported.faults:
        return Redirect(
            "/console/packages/import", f"{many(len(imported.faults), 'fault')}; nothing was imported", failed=True
        )
    return Redirect(
        "/console/packages", f"{many(imported.packages, 'package')}, {imported.changed} of them new or changed"
    )


def _text(file: bytes) -> str | None:
    """None for what is no text."""
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
        return unzip.decompress(base64.b64decode(packed, validate=True), UNPACKED).decode() or None
    except (ValueError, zlib.error):
        return None


# Stock


async def choose_stock(context: RequestContext) -> Page:
    return permissions.page(context, "stock", package=await _package(context), report=None)


async def load_stock(context: RequestContext) -> Answer:
    """All profiles of the file or, with a report of every fault, none."""
    package, parts = await _package(context), context.parts
    text = _text(context.files.get("file", b""))
    if text is None:
        return Redirect(_stock_page(context.path), "A CSV file in UTF-8 is needed", failed=True)
    report = await stock.load_stock(parts.database, parts.data_keys, package.package_code, text, context.author)
    return permissions.page(context, "stock", status=400 if report.faults else 200, package=package, report=report)


def _stock_page(path: Mapping[str, str]) -> str:
    return f"/console/packages/{path['code']}/stock"


async def _package(context: RequestContext) -> Package:
    """Raises NotHere."""
    code = context.path["code"]
    async with context.parts.database.connection() as connection:
        found = (await console_packages.named(connection, [code])).get(code)
    if found is None:
        raise NotFound
    return found


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/packages", LOOK, packages, "Packages"),
    Route("POST", "/console/packages/status", TERMS, set_status),
    Route("GET", "/console/packages/import", TERMS, choose),
    Route("POST", "/console/packages/preview", TERMS, preview),
    Route("POST", "/console/packages/import", TERMS, apply),
    Route("GET", "/console/packages/{code}/stock", TERMS, choose_stock),
    Route("POST", "/console/packages/{code}/stock", TERMS, load_stock),
)
