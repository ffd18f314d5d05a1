"""A cluster for development and tests: a coordinator and two workers of Citus on this machine, on private sockets.

DEALER_CITUS names a PostgreSQL 18 that has Citus (deploy/citus/build.sh builds one).
"""

from dealer_server.dev.cluster.nodes import INSTALLATION, Cluster, installation, introduce, start

__all__ = ["INSTALLATION", "Cluster", "installation", "introduce", "start"]
