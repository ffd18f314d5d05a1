"""`dealer-server keys`: the master keys that seal secrets."""

from cyclopts import App

from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import print_result

app = App(name="keys", help="The master keys that seal secrets.")


@app.command(name="rotate")
async def rotate_master_key(*, as_json: AsJson = False, context: Context) -> None:
    """Seal every secret again under the newest of DEALER_SEALING_KEYS; safe to repeat, and while serving."""
    from rich.console import Console
    from rich.progress import Progress

    from dealer_server.operations.keys.rotate import rotate_master_key

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        bar = progress.add_task("credentials", total=None)
        rotated = await rotate_master_key(
            context.database, context.settings.master_keys, context.author, lambda count: progress.advance(bar, count)
        )
    print_result(
        as_json,
        {"credentials": rotated.credentials, "dataKeys": rotated.data_keys},
        f"{rotated.credentials} credentials and {rotated.data_keys} data keys are sealed again",
    )
