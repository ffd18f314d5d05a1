"""Why is a measurement worth nothing?"""


class Failed(Exception):
    """A measurement that must not be believed, or that cannot be made here; the message is for whoever runs it."""
