"""What goes wrong with the embedded PostgreSQL."""


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot be used; the message is one line for the operator."""
