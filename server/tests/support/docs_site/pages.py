"""The documentation as the service has it: every file by its path."""

import runpy

from dealer_server.docs_site.site import files
from support.paths import DOCS

MADE = runpy.run_path(str(DOCS / "__main__.py"))  # `python -m docs`
FILES = files(MADE["document"]())
PAGES = [path for path, file in FILES.items() if file.media_type.startswith("text/html")]
