"""All SQL: one statement per function, one module per noun."""

from dealer_server.store.audit import audit_log
from dealer_server.store.catalogue import package, price_list
from dealer_server.store.orders import listing, order
from dealer_server.store.profiles import suspension
from dealer_server.store.refunds import refund, void
from dealer_server.store.suppliers import purchase, stock, supplier
from dealer_server.store.tenants import data_key, serve_lock, tenant
from dealer_server.store.wallets import ledger, topup, wallet

__all__ = [
    "audit_log",
    "data_key",
    "ledger",
    "listing",
    "order",
    "package",
    "price_list",
    "purchase",
    "refund",
    "serve_lock",
    "stock",
    "supplier",
    "suspension",
    "tenant",
    "topup",
    "void",
    "wallet",
]
