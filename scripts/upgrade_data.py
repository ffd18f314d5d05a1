"""Keeps what a release leaves in its database, for the test of the next upgrade: python scripts/upgrade_data.py.

Run it before the first migration of a new release. It writes server/tests/support/upgrade/NNNN.sql.gz, the rows of the
schema with migration NNNN; server/tests/store/test_upgrade.py migrates them.
"""

import asyncio
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "server/tests"))

from dealer_server.dev import embedded  # noqa: E402
from dealer_server.store import schema  # noqa: E402
from support import trading  # noqa: E402
from support.api_client import running_service  # noqa: E402

ORDERS, REFUNDS = 30, 3
MOST_CODES = "iccid NOT IN (SELECT iccid FROM stock_profile WHERE taken_by IS NULL ORDER BY iccid LIMIT 100)"


async def fill(dsn: str) -> None:
    """Dealers buy, give back and ask for money; everything is delivered and told."""
    connection = await asyncpg.connect(dsn)
    await schema.migrate(connection)
    await connection.close()
    async with trading.opened(dsn) as workload, running_service(dsn) as service:
        buyers = workload.buyers
        for _ in range(ORDERS):
            await buyers.attempt(buyers.new(), service.url)
        await workload.becomes_empty("orders WHERE delivery_status NOT IN ('DELIVERED', 'FAILED')")
        for purchase in buyers.purchases[:REFUNDS]:
            await purchase.client.post("/esim/refund", {"orderNo": purchase.order_no})
        await buyers.clients[0].post("/account/topup", {"transactionId": "kept-topup", "amount": "50"})
        await workload.becomes_empty("webhook_delivery WHERE state NOT IN ('DELIVERED', 'SUPERSEDED', 'SKIPPED')")
        async with service.database.connection() as connection:  # they would be most of the file
            await connection.execute(f"DELETE FROM stock_profile WHERE taken_by IS NULL AND {MOST_CODES}")
        assert await service.audit() == []


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="esim-dealer-upgrade-") as folder:
        Path(folder).chmod(0o755)
        server = embedded.start(Path(folder) / "data", fast_and_unsafe=True)
        try:
            asyncio.run(fill(server.dsn))
            dump = subprocess.run(
                [server._programs.bin / "pg_dump", "--data-only", "--inserts", "--rows-per-insert=50", server.dsn],
                check=True,
                capture_output=True,
            ).stdout
        finally:
            server.stop()
    # What psql alone understands.
    lines = [line for line in dump.splitlines(keepends=True) if not line.startswith(b"\\")]
    target = ROOT / f"server/tests/support/upgrade/{schema.known()[-1].number:04d}.sql.gz"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(gzip.compress(b"".join(lines), 9, mtime=0))
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
