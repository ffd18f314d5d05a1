"""Puts the pages of the documentation into the wheel; in a checkout the service reads them where they are."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONTENT = "dealer_server/docs_site/content"
PATTERNS = (
    *("CHANGELOG.md", "sdk/README.md", "docs/*.md", "docs/guides/*.md", "docs/operating/*.md", "docs/images/*"),
    *("examples/*.py", "examples/receivers/*.py", "examples/languages/*/[dD]ealer.*"),
)


class Documentation(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        top = Path(self.root).parent
        if version != "editable":
            files = sorted(file for pattern in PATTERNS for file in top.glob(pattern))
            build_data["force_include"] |= {str(file): f"{CONTENT}/{file.relative_to(top)}" for file in files}
