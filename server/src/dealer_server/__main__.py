"""`dealer-server`: the commands of cli/, joined."""

from importlib.metadata import version
from typing import Literal

from cyclopts import App

from dealer_server.cli import (
    backup,
    catalog,
    credentials,
    database,
    keys,
    order,
    price_list,
    processes,
    refund,
    reports,
    stock,
    supplier,
    tenant,
    topup,
    user,
    webhook,
)
from dealer_server.cli.command import run


def _version() -> str:
    return f"dealer-server {version('esim-dealer-server')}"


app = App(name="dealer-server", help="The service behind the eSIM Dealer Open API v1.", version=_version)
for command in (
    processes.dev,
    processes.serve,
    processes.work,
    database.migrate,
    database.audit,
    database.retention,
    database.distribute,
):
    app.command(command)
for group in (
    *(
        tenant,
        credentials,
        catalog,
        price_list,
        stock,
        keys,
        webhook,
        order,
        topup,
        refund,
        reports,
        supplier,
        user,
        backup,
    ),
):
    app.command(group.app)
app.command(database.cluster)


@app.command
async def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands in your shell, as in eval "$(dealer-server completion bash)".

    Args:
        shell: Which shell reads it.
    """
    print(app.generate_completion(shell=shell), end="")


def main() -> None:
    """Runs one command and ends the process."""
    run(app)


if __name__ == "__main__":
    main()
