"""The operator's first page: what is wrong, and how sales go."""

from dealer_server.console.operator.overview.page import overview

__all__ = ["overview"]
