"""Which PostgreSQL tells what each statement costs? One with pg_stat_statements: the embedded one ships no contrib."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from dealer_server.dev.embedded import accounts, postgres
from dealer_server.dev.embedded.programs import Programs

_INSTALLED = Path("/usr/lib/postgresql")  # Debian's, one folder for each version
_LIBRARY = "lib/pg_stat_statements.so"
_SETTINGS = {name: value for name, value in postgres.SETTINGS.items() if name != "io_method"} | {  # 18 has it
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track_planning": "on",
}


class Missing(Exception):
    """None is installed; the message says how to install one."""


@dataclass(frozen=True)
class Contrib:
    """It stands where the embedded one stands in an Instance, with its settings."""

    dsn: str
    data: Path
    socket_dir: Path
    _programs: Programs = field(repr=False)

    def stop(self) -> None:
        postgres.stop(self._programs, self.data / "postgres")
        postgres.remove_socket_folder(self.data, self.socket_dir)


def start(data: Path) -> Contrib:
    """The newest that is installed, on a new folder. Raises Missing."""
    found = sorted(_INSTALLED.glob(f"*/{_LIBRARY}"), key=lambda library: int(library.parts[-3]))
    if not found:
        raise Missing(f"there is no {_INSTALLED}/*/{_LIBRARY}; on Debian: apt-get install postgresql")
    data.mkdir(mode=0o711)
    cluster = data / "postgres"
    installed = Programs(found[-1].parents[1] / "bin", accounts.server_account(cluster))
    _create(installed, cluster)
    socket_dir = postgres.socket_folder(installed, cluster)
    postgres.launch(installed, data, socket_dir, _SETTINGS)
    return Contrib(
        f"postgresql://esim@/esim?host={quote(str(socket_dir))}&port={postgres.PORT}", data, socket_dir, installed
    )


def _create(installed: Programs, cluster: Path) -> None:
    fresh = Path(tempfile.mkdtemp(prefix="fresh-", dir=cluster.parent))
    installed.hand_over(fresh)
    # As for the embedded one; its builtin locale came with 17.
    installed.must_run(
        "initdb",
        "-D",
        fresh.name,
        "--username=esim",
        "--data-checksums",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--auth-local=trust",
        "--auth-host=reject",
        folder=cluster.parent,
    )
    installed.must_run(
        "postgres",
        "--single",
        "-D",
        fresh.name,
        "-c",
        "exit_on_error=on",
        "template1",
        folder=cluster.parent,
        statement="ALTER DATABASE postgres RENAME TO esim\n",
    )
    fresh.rename(cluster)
