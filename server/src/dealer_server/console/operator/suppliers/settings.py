"""A supplier's settings by a form whose fields follow its kind. Secrets are filled in, never shown."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from dealer_server.console.operator.suppliers import fields
from dealer_server.console.operator.suppliers.fields import KindOfSupplier
from dealer_server.console.operator.suppliers.listing import SUPPLIER, SUPPLIERS
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS
from dealer_server.console.shared.request_context import Answer, Html, NotFound, Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.suppliers.configure import SettingsRefused, put_supplier
from dealer_server.operations.suppliers.describe import events_path, load_supplier, settings_version, visible_settings
from dealer_server.operations.versions import ABSENT, ChangedMeanwhile
from dealer_server.store.suppliers.supplier import Supplier
from dealer_server.suppliers import registry

NEW, SETTINGS = f"{SUPPLIERS}/new", f"{SUPPLIER}/settings"
TEMPLATE = "operator/suppliers/settings.html"


class Stored(NamedTuple):
    """A supplier's settings as its form shows them. `known`: what tells a certificate that is set. `events`: the path
    that its messages come to."""

    kind: KindOfSupplier
    version: str
    texts: Mapping[str, str]
    known: Mapping[str, str]
    events: str = ""


@page(NEW, OPERATOR_ADMINS, TEMPLATE)
async def new(context: RequestContext) -> Html:
    """First the kind is chosen. Raises ReauthenticationRequired."""
    kind = fields.KINDS.get(context.query.get("kind", ""))
    if kind is None:
        return Html(kinds=list(fields.KINDS.values()), kind=None)
    context.require_recent_authentication()
    return _form(context, kind, "", _fresh(kind))


@action(NEW, OPERATOR_ADMINS, TEMPLATE)
async def create(context: RequestContext) -> Answer:
    """Raises ReauthenticationRequired, NotFound."""
    kind = fields.KINDS.get(context.form.get("kind", ""))
    if kind is None:
        raise NotFound
    context.require_recent_authentication()
    code = context.form.get("code", "").strip()
    try:
        await _put(context, code, kind, ABSENT)
    except OperatorError as why:
        return _form(context, kind, "", _fresh(kind), refused=why)
    return Redirect(f"{SUPPLIERS}/{code}", f"{code} is set up. Test it, then route packages to it")


@page(SETTINGS, OPERATOR_ADMINS, TEMPLATE)
async def edit(context: RequestContext) -> Html:
    """Raises ReauthenticationRequired, NotFound."""
    stored = await _stored(context)
    context.require_recent_authentication()
    return _form(context, stored.kind, context.path["code"], stored)


@action(SETTINGS, OPERATOR_ADMINS, TEMPLATE)
async def save(context: RequestContext) -> Answer:
    """What was not filled in of secrets and certificates stays. Raises ReauthenticationRequired, NotFound."""
    stored, code = await _stored(context), context.path["code"]
    context.require_recent_authentication()
    try:
        await _put(context, code, stored.kind, context.form.get("version"))
    except ChangedMeanwhile:
        raise  # the page tells of it as of any other form
    except OperatorError as why:
        return _form(context, stored.kind, code, stored, refused=why)
    return Redirect(f"{SUPPLIERS}/{code}", "The settings are saved. Workers use them within a second; test them")


async def _put(context: RequestContext, code: str, kind: KindOfSupplier, version: str | None) -> None:
    """Raises OperatorError."""
    parts = context.parts
    document = fields.document(kind, context.form, new=version == ABSENT)
    await put_supplier(
        parts.database,
        parts.data_keys,
        code,
        kind.name,
        document,
        parts.settings.base_url,
        context.author,
        keep=True,
        version=version,
    )


def _fresh(kind: KindOfSupplier) -> Stored:
    """The defaults, where there are any."""
    known = msgspec.structs.fields(registry.KINDS[kind.name].settings)
    defaults = {field.encode_name: field.default for field in known if field.default is not msgspec.NODEFAULT}
    return Stored(kind, ABSENT, fields.texts(kind, defaults), {})


async def _stored(context: RequestContext) -> Stored:
    """Raises NotFound."""
    code, parts = context.path["code"], context.parts
    async with parts.database.connection() as connection:
        try:
            supplier = await load_supplier(connection, parts.data_keys, code)
        except OperatorError:
            raise NotFound from None
    kind = fields.KINDS.get(supplier.kind)
    if kind is None:
        raise NotFound
    return Stored(kind, settings_version(parts.data_keys, supplier), *_shown(kind, supplier), events_path(supplier))


def _shown(kind: KindOfSupplier, supplier: Supplier) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of the form, and what may be known of each secret and certificate that is set."""
    settings = registry.read(supplier.kind, supplier.settings)
    visible = visible_settings(settings)
    known = {
        field.name: str(visible.get(field.name, "")) for field in kind.fields if field.secret or field.form == "pem"
    }
    return fields.texts(kind, msgspec.to_builtins(settings)), known


def _filled_in(kind: KindOfSupplier, form: Mapping[str, str]) -> dict[str, str]:
    return {field.name: form.get(field.name, "").strip().replace("\r\n", "\n") for field in kind.fields}


def _form(
    context: RequestContext,
    kind: KindOfSupplier,
    code: str,
    stored: Stored,
    *,
    refused: OperatorError | None = None,
) -> Html:
    """The form; after a refusal as it was filled in, but for secrets."""
    again = refused is not None
    faults = refused.faults if isinstance(refused, SettingsRefused) else {}
    errors = fields.errors(kind, faults, context.form)
    if "code" in faults:
        errors["code"] = faults["code"]
    return Html(
        400 if again else 200,
        kind=kind,
        code=code,
        new_code=context.form.get("code", ""),
        stored=stored,
        values=_filled_in(kind, context.form) if again else stored.texts,
        errors=errors,
        fault="" if errors or refused is None else str(refused),
        version=context.form.get("version", stored.version),
        kinds=[],
    )
