"""`dealer-server`: the commands of cli/, joined."""

from cyclopts import App

from dealer_server.cli import (
    catalog,
    credentials,
    database,
    keys,
    order,
    processes,
    refund,
    stock,
    supplier,
    tenant,
    topup,
    user,
    webhook,
)
from dealer_server.cli.command import run

app = App(name="dealer-server", help="The service behind the eSIM Dealer Open API v1.", version_flags=[])
for command in (
    processes.dev,
    processes.serve,
    processes.work,
    database.migrate,
    database.audit,
    database.retention,
):
    app.command(command)
for group in (tenant, credentials, catalog, stock, keys, webhook, order, topup, refund, supplier, user):
    app.command(group.app)


def main() -> None:
    """Runs one command and ends the process."""
    run(app)


if __name__ == "__main__":
    main()
