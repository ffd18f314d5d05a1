"""STORE: all SQL, one statement per function, one file per noun."""

from dealer_server.store import data_key, listing, order, package, sealing, serving, stock, tenant, wallet, webhook

__all__ = ["data_key", "listing", "order", "package", "sealing", "serving", "stock", "tenant", "wallet", "webhook"]
