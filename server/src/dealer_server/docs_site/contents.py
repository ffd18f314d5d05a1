"""Which pages has the site, in which order, and from which file of the repository is each made?"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
IMAGES = "docs/images"
WRITTEN = "docs/reference.md"
SDK = "sdk/README.md"
EXAMPLES = ("examples/*.py", "examples/receivers/*.py", "examples/languages/*/[dD]ealer.*")
_PROGRAMS = {".cs", ".go", ".java", ".mts", ".php", ".py", ".rb", ".sh"}  # not what a compiler left beside them


class Entry(NamedTuple):
    """`path`: below /docs. `source`: from the top of the repository; "" for what is made from the OpenAPI document."""

    path: str
    label: str
    source: str = ""


class Section(NamedTuple):
    label: str
    icon: str
    entries: tuple[Entry, ...]


def _page(path: str, label: str) -> Entry:
    return Entry(path, label, f"docs/{path}.md")


def _section(label: str, icon: str, *entries: Entry) -> Section:
    return Section(label, icon, entries)


REFERENCE = Entry("reference", "All operations")
EVENTS = Entry("reference/events", "Webhook events")
SECTIONS = (
    _section(
        "Get started",
        "flag",
        _page("quickstart", "Quick start"),
        _page("guides/signing", "Signing"),
        _page("specification", "Specification"),
        _page("glossary", "Glossary"),
        Entry("changelog", "Changelog", "CHANGELOG.md"),
    ),
    _section(
        "Guides",
        "list-search",
        _page("guides/receive-webhooks", "Receive webhooks"),
        _page("guides/after-the-sale", "After the sale"),
        _page("guides/testing", "Test your integration"),
        _page("guides/receive-notices", "Receive notices"),
        _page("guides/app-keys", "AppKeys and scopes"),
        _page("guides/install-page", "The install page"),
        _page("guides/buy-by-csv", "Buy by CSV"),
        _page("guides/rt-clients", "Move from an RT-family API"),
    ),
    _section(
        "Languages",
        "code",
        Entry("sdk/python", "Python", SDK),
        _page("guides/typescript", "TypeScript"),
        _page("guides/other-languages", "Other languages"),
        _page("guides/mcp", "Agents (MCP)"),
    ),
    _section("API reference", "link", REFERENCE, EVENTS, _page("errors", "Errors")),
    _section(
        "Operate",
        "settings",
        _page("operating", "Operating the service"),
        _page("operating/installation", "Installation"),
        _page("operating/upgrade", "Upgrades"),
        _page("operating/backup", "Backups"),
        _page("operating/failover", "Failover"),
        _page("operating/sizes", "Sizes"),
        _page("operating/cluster", "Several machines"),
        _page("operating/runbooks", "Runbooks"),
        _page("operating/traces", "Traces and error reports"),
        _page("console", "The console"),
        _page("guides/connect-suppliers", "Connect a supplier"),
        _page("guides/catalog-import", "Import a catalogue"),
        _page("guides/stock", "Stock"),
    ),
    _section(
        "Contribute",
        "edit",
        _page("architecture", "Architecture"),
        _page("contributing", "Contributing"),
        _page("guides/add-an-operation", "Add an operation"),
        _page("guides/add-a-webhook-event", "Add a webhook event"),
        _page("guides/add-a-console-page", "Add a console page"),
        _page("guides/add-a-supplier", "Add a supplier"),
    ),
)


def entries() -> Iterator[Entry]:
    for section in SECTIONS:
        yield from section.entries


def by_source() -> Mapping[str, str]:
    """The path of the page that each file of the repository becomes."""
    return {entry.source: entry.path for entry in entries() if entry.source} | {WRITTEN: REFERENCE.path}


@functools.cache
def examples() -> Mapping[str, Path]:
    """The programs that pages link to, shown as they are: by their path in the repository."""
    found = sorted(file for pattern in EXAMPLES for file in root().glob(pattern) if file.suffix in _PROGRAMS)
    return {file.relative_to(root()).as_posix(): file for file in found}


def root() -> Path:
    """Where the sources stand: beside this module in a wheel, else the repository."""
    carried = HERE / "content"
    return carried if carried.is_dir() else HERE.parents[3]
