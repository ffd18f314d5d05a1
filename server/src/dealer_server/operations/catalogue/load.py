"""How does a process read the catalogue into memory?"""

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.store.suppliers import supplier
from dealer_server.suppliers import registry


async def load_catalogue(connection: Connection) -> Catalogue:
    """The version is read first: what changes meanwhile has a later one, and is read again."""
    version, packages = await store.package.load(connection)
    lists = await store.price_list.load(connection)
    costs = await store.price_list.costs(connection) if any(terms.basis == "COST" for terms in lists) else {}
    kinds = await supplier.kinds(connection)
    sms = [
        code
        for code, kind in {**kinds, **{code: code for code in registry.BUILTIN}}.items()
        if registry.caps_of(kind).sms
    ]
    return Catalogue(version, packages, lists, costs, sms)
