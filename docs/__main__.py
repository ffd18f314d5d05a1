"""`python -m docs`: writes docs/reference.md, and the documentation as static files into a folder (default: site)."""

import argparse
import json
import shutil
from pathlib import Path

import msgspec

from dealer_server.api.openapi import generator
from dealer_server.api.routes import ROUTES
from dealer_server.docs_site import reference as written
from dealer_server.docs_site.site import files

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference.md"


def document() -> written.Json:
    """Raises generator.Incomplete, which names the route and what it lacks."""
    generator.require_complete(ROUTES)
    return json.loads(msgspec.json.encode(generator.document(ROUTES, base_url="https://api.example.com", version="1")))


def reference(document: written.Json) -> str:
    return written.reference(document)


def build(document: written.Json, folder: Path) -> int:
    """The site as files, for any server of static files at the top of a host; what was there before is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    found = files(document)
    for path, file in found.items():
        name = path.lstrip("/")
        to = folder / (name if Path(name).suffix else f"{name}/index.html")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(file.body())
    return len(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "site")
    folder: Path = parser.parse_args().folder
    described = document()
    REFERENCE.write_text(reference(described))
    print(f"wrote {REFERENCE}")
    print(f"wrote {build(described, folder)} files into {folder}")
