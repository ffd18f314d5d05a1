"""An advisory lock that each serve process holds on the database, exclusive or shared."""

from dealer_server.db.session import Session

EMBEDDED_CLUSTER = "esim-dealer"  # the cluster_name of the embedded PostgreSQL
_LOCK = 5_382_015


async def hold(session: Session, *, shared: bool) -> bool:
    """Takes the lock unless this session has it; False if another serve process holds it.

    The lock ends with its connection, so this is called repeatedly.
    """
    take = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
    rows = await session.fetch(
        "SELECT CASE WHEN EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
        f" AND classid = 0 AND objid = {_LOCK}) THEN true ELSE {take}({_LOCK}) END AS held"
    )
    return rows[0]["held"]


async def cluster_name(session: Session) -> str:
    [row] = await session.fetch("SELECT current_setting('cluster_name') AS name")
    return row["name"]
