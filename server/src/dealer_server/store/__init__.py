"""STORE: all SQL, one statement per function, one file per noun."""

from dealer_server.store import (
    data_key,
    ledger,
    listing,
    order,
    package,
    purchase,
    refund,
    sealing,
    serving,
    stock,
    supplier,
    tenant,
    topup,
    wallet,
    webhook,
)

__all__ = [
    "data_key",
    "ledger",
    "listing",
    "order",
    "package",
    "purchase",
    "refund",
    "sealing",
    "serving",
    "stock",
    "supplier",
    "tenant",
    "topup",
    "wallet",
    "webhook",
]
