"""`dealer-server order`: orders whose eSIMs could not be delivered, and notes about orders."""

import sys

from cyclopts import App

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_json

app = App(name="order", help="Orders whose eSIMs could not be delivered, and notes.")


@app.command(name="retry")
async def retry_order(
    order_no: str,
    *,
    line: int | None = None,
    supplier: str | None = None,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Buy failed eSIMs of an order again, or send waiting ones to another supplier.

    A purchase whose outcome is unknown is not repeated: see `supplier resolve`. The command is safe to repeat.

    Args:
        line: The line, counting from 1 (default: all lines).
        supplier: A supplier of the package's route to buy from (default: the one the eSIM was sold from).
    """
    from dealer_server import clock
    from dealer_server.operations.orders.retry import retry_order

    keys = await context.data_keys()
    retried = await retry_order(context.database, keys, order_no, line, supplier, context.author, clock.now)
    if as_json:
        print_json(retried)
        return
    print(f"{order_no}: {retried.retried} failed and are bought again, {retried.waiting} waited and are tried now")
    for reason in retried.left:
        print(f"left alone: {reason}", file=sys.stderr)


@app.command(name="note")
async def add_note(order_no: str, text: str, *, context: Context) -> None:
    """Write a note on the order's page in the console. Operators read it, its dealer does not."""
    from dealer_server.operations.orders.note import add_note

    await add_note(context.database, order_no, text, context.author, context.clock)
    print(f"the note is on the page of {order_no}")
