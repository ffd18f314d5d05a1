"""Which files is the site made of? Pages in HTML and in Markdown, the search index, styles, pictures."""

import functools
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dealer_server.console.shared import rendering
from dealer_server.docs_site import contents, markdown, reference
from dealer_server.docs_site.contents import Entry
from dealer_server.docs_site.reference import Json, Operation

BASE = "/docs"
NOT_FOUND = f"{BASE}/404.html"
TITLE = "eSIM Dealer Open API"
SUMMARY = "Sell eSIM data packages: order from a prepaid wallet, receive signed webhooks."
_SMALLEST_ZIPPED = 1_000
_SAMPLE = re.compile(r"^```python\n.*?^```$", re.DOTALL | re.MULTILINE)
_STATIC = f"{BASE}/static/"
_OF_THE_CONSOLE = ("console.css", "theme.js", "icon.svg")
_MARKDOWN, _PLAIN = "text/markdown; charset=utf-8", "text/plain; charset=utf-8"
_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".svg": "image/svg+xml"}


class File:
    """Made when it is asked for the first time."""

    def __init__(self, media_type: str, make: Callable[[], bytes], *, hashed: bool = False):
        """`hashed`: what is in it never changes under its name."""
        self.media_type = media_type
        self.hashed = hashed
        self.body = functools.cache(make)
        self.zipped = functools.cache(self._zipped)
        self.tag = functools.cache(lambda: f'W/"{hashlib.sha256(self.body()).hexdigest()[:32]}"')

    def _zipped(self) -> bytes | None:
        """None where that is not worth it."""
        text = self.media_type.startswith("text/") or self.media_type.partition(";")[0] in (
            *("application/json", "image/svg+xml"),
        )
        return gzip.compress(self.body(), mtime=0) if text and len(self.body()) >= _SMALLEST_ZIPPED else None


class Page:
    """Rendered when it is asked for. `aside`: Markdown of what stands beside the text, for an operation."""

    def __init__(self, entry: Entry, section: str, text: str, operation: Operation | None = None, aside: str = ""):
        self.entry = entry
        self.section = section
        self.markdown = f"{text}\n{aside}" if aside else text
        self.operation = operation
        self._text = text
        self._aside = aside

    @functools.cached_property
    def rendered(self) -> markdown.Rendered:
        return markdown.rendered(self._text)

    @functools.cached_property
    def aside(self) -> str:
        return markdown.rendered(self._aside).html if self._aside else ""

    @property
    def address(self) -> str:
        return f"{BASE}/{self.entry.path}"


class NavigationSection(NamedTuple):
    label: str
    icon: str
    pages: Sequence[Page]


def files(document: Json) -> Mapping[str, File]:
    """Every file by its path, made of this OpenAPI document and the Markdown of the repository."""
    site = _Site(document)
    found = {
        BASE: _html(site.home),
        f"{BASE}.md": File(_MARKDOWN, lambda: site.llms().encode()),
        NOT_FOUND: _html(site.not_found),
        f"{BASE}/search.json": File("application/json", site.search_index),
        "/llms.txt": File(_PLAIN, lambda: site.llms().encode()),
        "/llms-full.txt": File(_PLAIN, lambda: site.llms_full().encode()),
    }
    for page in site.pages:
        found[page.address] = _html(functools.partial(site.page, page))
        found[f"{page.address}.md"] = File(_MARKDOWN, page.markdown.encode)
    return found | dict(_pictures()) | dict(_examples()) | dict(_assets().values())


class _Site:
    def __init__(self, document: Json):
        self._document = document
        self._sections = [
            NavigationSection(section.label, section.icon, [*self._read(section)]) for section in contents.SECTIONS
        ]
        self.pages = [page for section in self._sections for page in section.pages]

    def _read(self, section: contents.Section) -> Iterator[Page]:
        for entry in section.entries:
            if entry == contents.REFERENCE:
                yield Page(entry, section.label, _made(reference.reference(self._document, on_site=True)))
                yield from self._operations(section.label)
            elif entry == contents.EVENTS:
                yield Page(entry, section.label, _made(reference.events(self._document)))
            else:
                text = (contents.root() / entry.source).read_text("utf-8")
                yield Page(entry, section.label, markdown.linked(entry.source, text))

    def _operations(self, section: str) -> Iterator[Page]:
        for operation in reference.operations(self._document):
            text = _made(reference.operation(self._document, operation.path))
            aside = reference.examples(self._document, operation.path)
            yield Page(Entry(f"reference{operation.path}", operation.path), section, text, operation, aside)

    def home(self) -> str:
        sample = _SAMPLE.search((contents.root() / contents.SDK).read_text("utf-8"))
        assert sample, f"{contents.SDK} begins with a program"
        code = Markup(markdown.rendered(sample[0]).html)  # noqa: S704 (made of our own text)
        return self._render("home.html", title=TITLE, summary=SUMMARY, markdown_at=f"{BASE}.md", sample=code)

    def not_found(self) -> str:
        return self._render("not_found.html", title="Page not found", summary="", markdown_at="")

    def page(self, page: Page) -> str:
        at = self.pages.index(page)
        return self._render(
            "operation.html" if page.operation else "page.html",
            title=page.rendered.title,
            summary=page.rendered.summary,
            markdown_at=f"{page.address}.md",
            page=page,
            prefix=reference.PREFIX,
            body=Markup(page.rendered.html),  # noqa: S704 (made of our own text)
            aside=Markup(page.aside),  # noqa: S704
            headings=[passage.heading for passage in page.rendered.passages if passage.heading.level in (2, 3)],
            before=self.pages[at - 1] if at else None,
            after=self.pages[at + 1] if at + 1 < len(self.pages) else None,
        )

    def _render(self, template: str, **fields: Any) -> str:
        current = fields.get("page")
        return _templates().get_template(template).render(sections=self._sections, current=current, **fields)

    def search_index(self) -> bytes:
        """Rows of path, title of the page, heading, anchor, text, name of the page in the navigation."""
        rows = [
            (page.address, page.rendered.title, heading.text, heading.anchor, text, page.entry.label)
            for page in self.pages
            for heading, text in page.rendered.passages
        ]
        return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()

    def llms(self) -> str:
        """A list of all pages (llmstxt.org)."""
        lines = [f"# {TITLE}", "", f"> {SUMMARY}", "", "All pages in one file: [llms-full.txt](/llms-full.txt)."]
        for section in self._sections:
            lines += ["", f"## {section.label}", ""]
            lines += [
                f"- [{page.rendered.title}]({page.address}.md): {page.rendered.summary}" for page in section.pages
            ]
        return "\n".join(lines) + "\n"

    def llms_full(self) -> str:
        return "\n\n---\n\n".join(f"<!-- {page.address} -->\n\n{page.markdown.strip()}" for page in self.pages) + "\n"


def _made(text: str) -> str:
    """Its links, made as those of the file that `make docs` writes."""
    return markdown.linked(contents.WRITTEN, text)


def _html(make: Callable[[], str]) -> File:
    return File("text/html; charset=utf-8", lambda: make().encode())


def _pictures() -> Iterator[tuple[str, File]]:
    for picture in sorted((contents.root() / contents.IMAGES).iterdir()):
        if picture.suffix in _TYPES:
            yield f"{BASE}/images/{picture.name}", File(_TYPES[picture.suffix], picture.read_bytes)


def _examples() -> Iterator[tuple[str, File]]:
    for path, file in contents.examples().items():
        yield f"{BASE}/{path}", File(_PLAIN, file.read_bytes)


@functools.cache
def _assets() -> Mapping[str, tuple[str, File]]:
    """What pages link to, by its plain name: the address with a hash of what is in it, and the file."""
    names, read = rendering.names(), rendering.assets()
    shared = [name for name in read if name in _OF_THE_CONSOLE or name.endswith(".woff2")]
    ours = {file.name: rendering.read_asset(file) for file in sorted((Path(__file__).parent / "static").iterdir())}
    found = [(name, names[name], read[name]) for name in shared]
    found += [(name, rendering.hashed(name, asset.body), asset) for name, asset in ours.items()]
    return {
        name: (_STATIC + hashed, File(asset.media_type, functools.partial(bytes, asset.body), hashed=True))
        for name, hashed, asset in found
    }


def _address(name: str) -> str:
    return _assets()[name][0]


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"drawn": rendering.drawn, "asset": _address, "product": TITLE}
    return made
