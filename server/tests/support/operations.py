"""Every operation as its row says, without the parts it runs on: for tests that go through all there are."""

from dealer_server.api import routes


class Placeholder:
    """Stands for the parts: what the rows say is wanted here, not what they do."""

    def __getattr__(self, name: str) -> "Placeholder":
        return self


ROWS = routes.operations(routes.Parts(*(Placeholder() for _ in routes.Parts.__struct_fields__)))  # type: ignore[arg-type]
PATHS = [row.path for row in ROWS]
