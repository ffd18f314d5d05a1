"""Does every document, section and decision that is cited exist?"""

import re
from collections.abc import Iterator
from pathlib import Path

from support.paths import DOCS, ROOT

TOPS = ("sdk", "server", "bench", "docs", "examples", "scripts", "vectors")
SUFFIXES = {".py", ".sql", ".md", ".toml", ".html", ".js", ".css", ".in"}
SKIPPED = {"vendor", "results", "__pycache__", ".venv", "looks"}

SECTIONS = re.findall(r"^#{2,3} ([\d.]+?)\.? ", (DOCS / "specification.md").read_text(), re.MULTILINE)
DECISIONS = {file.name[:4] for file in DOCS.glob("decisions/[0-9]*.md")}
NUMBERS = r"\d+(?:\.\d+)*(?:(?:, | and )\d+(?:\.\d+)*)*"
SPECIFICATION = re.compile(rf"\bspecification (?:rule )?({NUMBERS})")
DECISION = re.compile(r"\bdecisions?[/ ](\d+)\b")
ELSEWHERE = re.compile(
    r"\b(?:decisions|suppliers|traps|lives|console) \d+(?:\.\d+)*(?: rule \d+)?|\(trust\b|\btrust, [A-Z]\w+"
)
DOCUMENT = re.compile(r"[\w./-]*\w\.md\b")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)(?:#[^)]*)?\)")


def files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md"))
    for top in TOPS:
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix in SUFFIXES and not SKIPPED & set(file.relative_to(ROOT).parts):
                yield file


def decision_exists(number: str) -> bool:
    return number.zfill(4) in DECISIONS


def document_exists(file: Path, name: str) -> bool:
    return any((folder / name).exists() for folder in (ROOT, DOCS, DOCS / "guides", file.parent))


def faults(file: Path, text: str) -> Iterator[str]:
    """What is cited there and does not exist."""
    for match in SPECIFICATION.finditer(text):
        for number in re.findall(r"\d+(?:\.\d+)*", match[1]):
            if number not in SECTIONS:
                yield f"specification {number}"
    for match in DECISION.finditer(text):
        if not decision_exists(match[1]):
            yield match[0]
    yield from (match[0] for match in ELSEWHERE.finditer(text))
    if file.suffix != ".md":
        yield from (name for name in DOCUMENT.findall(text) if not document_exists(file, name))
    else:
        yield from (link for link in LINK.findall(text) if not (file.parent / link).exists())


def test_every_citation_names_something_of_this_repository():
    others = (file for file in files() if file != Path(__file__))
    found = [f"{file.relative_to(ROOT)}: {fault}" for file in others for fault in faults(file, file.read_text())]
    assert not found, "\n".join(found)


def test_every_decision_is_listed_by_its_title():
    files = sorted(DOCS.glob("decisions/[0-9]*.md"))
    titles = {file.name: file.read_text().partition("\n")[0].removeprefix("# ") for file in files}
    lines = [f"- [{title}]({name})" for name, title in titles.items()]
    assert [line for line in (DOCS / "decisions/README.md").read_text().splitlines() if line[:1] == "-"] == lines
    assert [name for name, title in titles.items() if not title.startswith(f"{int(name[:4])}. ")] == []


def test_a_citation_of_something_else_is_found():
    text = "(specification 99.1, decisions 4, trust.md, suppliers 3 rule 2, decision 9999)"
    found = [*faults(ROOT / "any.py", text)]
    assert found == ["specification 99.1", "decision 9999", "decisions 4", "suppliers 3 rule 2", "trust.md"]
    assert [*faults(ROOT / "any.py", "(specification 4.3 rule 5, 6; docs/decisions/0004, guides/stock.md)")] == []
