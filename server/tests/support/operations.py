"""Every route of the test environment, for tests that go through all there are."""

from dealer_server.api.routes import ROUTES

PATHS = [route.path for route in ROUTES]

__all__ = ["PATHS", "ROUTES"]
