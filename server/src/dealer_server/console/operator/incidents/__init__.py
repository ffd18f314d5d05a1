"""What is wrong: on the whole platform, with a dealer, with a supplier; and the lines that wait for suppliers."""

from dealer_server.console.operator.incidents.waiting import waiting_lines

__all__ = ["waiting_lines"]
