"""`dealer-server order`: orders whose eSIMs were not made."""

import sys

import msgspec
from cyclopts import App

from dealer_server import settings
from dealer_server.cli import AsJson, author, opened_data_keys, opened_database, run

app = App(name="order", help="Orders whose eSIMs were not made.")


@app.command(name="retry")
def order_retry(
    order_no: str, *, line: int | None = None, supplier: str | None = None, as_json: AsJson = False
) -> None:
    """Have eSIMs made again that failed for good, or send what waits by another route.

    What may have been bought is left where it is: see `supplier resolve`. Repeating is harmless.

    Args:
        line: The line, counting from 1; all lines where it is left out.
        supplier: Who makes them, one of the package's route; where it is left out, who they were sold from.
    """

    async def retry() -> None:
        from dealer_server import clock
        from dealer_server.operations.orders.retry import retry_order

        opened = settings.read()
        async with opened_database(opened) as database:
            keys = await opened_data_keys(database, opened)
            done = await retry_order(database, keys, order_no, line, supplier, author(), clock.now)
        if as_json:
            print(msgspec.json.encode(done).decode())
            return
        print(f"{order_no}: {done.retried} made again, {done.waiting} waited already and are tried now")
        for reason in done.left:
            print(f"left alone: {reason}", file=sys.stderr)

    run(retry())
