"""Where the repository's own files are, for tests that read them."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parents[1]
DOCS = ROOT / "docs"
VECTORS = ROOT / "vectors"
SERVER = ROOT / "server/src/dealer_server"
SDK = ROOT / "sdk/src/esim_dealer"
