"""Is the documentation whole? Pages, links, navigation, Markdown, codes, operations and events."""

import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dealer_server.api.rt import errors as rt
from dealer_server.docs_site import contents, markdown
from dealer_server.rules.result_codes import RESULT_CODES
from esim_dealer.wire.events import EVENTS
from esim_dealer.wire.operations import OPERATIONS
from support.docs_site.pages import FILES, MADE, PAGES
from support.paths import DOCS, ROOT, SERVER

OUTSIDE = ("/console", "/openapi.json")  # of the same service, not of the site
NOT_PAGES = {"docs/reference.md"}  # made from the OpenAPI document, on the site too
ERRORS = (DOCS / "errors.md").read_text()


class Links(HTMLParser):
    """The addresses that a page leads to or loads, and the anchors that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: list[str] = []
        self.navigation: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._inside = given.get("aria-label") or self._inside if tag == "nav" else self._inside
        if address := given.get("href") or given.get("src"):
            self.addresses.append(address)
            if self._inside == "Documentation":
                self.navigation.append(address)
        if anchor := given.get("id"):
            self.anchors.append(anchor)

    def handle_endtag(self, tag: str) -> None:
        if tag == "nav":
            self._inside = ""


@cache
def links(path: str) -> Links:
    return Links(FILES[path].body().decode())


def dead(path: str, addresses: list[str]) -> Iterator[str]:
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or parts.path in OUTSIDE:
            continue
        target = parts.path or path
        if target not in FILES or (parts.fragment and parts.fragment not in links(target.removesuffix(".md")).anchors):
            yield address


@pytest.mark.parametrize("path", PAGES)
def test_no_link_of_a_page_is_dead(path: str) -> None:
    assert [*dead(path, links(path).addresses)] == []
    assert len(set(links(path).anchors)) == len(links(path).anchors)


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith(".md") or path.startswith("/llms")])
def test_no_link_of_a_page_in_markdown_is_dead(path: str) -> None:
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", FILES[path].body().decode(), flags=re.MULTILINE | re.DOTALL)
    found = [address for address in re.findall(r"\]\(([^()\s]+)\)", text) if not address.startswith("#")]
    assert [*dead(path, found)] == []


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_in_the_navigation_of_each_page(path: str) -> None:
    assert set(links(path).navigation) == set(PAGES) - {"/docs/404.html"}


def test_every_example_that_a_page_links_to_is_read_on_the_site() -> None:
    linked = {address for path in PAGES for address in links(path).addresses if address.startswith("/docs/examples/")}
    assert len(linked) == 13 and linked <= set(FILES)
    assert (
        FILES["/docs/examples/languages/go/dealer.go"].body() == (ROOT / "examples/languages/go/dealer.go").read_bytes()
    )


def test_every_document_is_a_page() -> None:
    folders = (DOCS, DOCS / "guides", DOCS / "operating")
    documents = {file.relative_to(ROOT).as_posix() for folder in folders for file in folder.glob("*.md")}
    shown = {entry.source for entry in contents.entries() if entry.source}
    assert documents - NOT_PAGES <= shown and all((ROOT / source).exists() for source in shown)


@pytest.mark.parametrize("path", [path for path in PAGES if path not in ("/docs", "/docs/404.html")])
def test_every_page_has_its_markdown_and_a_summary(path: str) -> None:
    assert FILES[f"{path}.md"].body().startswith(b"# ")
    assert re.search(rf'<link rel="alternate" type="text/markdown" href="{path}.md">', FILES[path].body().decode())
    assert re.search(r'<meta name="description" content="[^"]{20,}">', FILES[path].body().decode())


def test_the_console_leads_to_pages_that_exist() -> None:
    templates = (file.read_text() for file in (SERVER / "console/templates").rglob("*.html"))
    found = {address for text in templates for address in re.findall(r'"(/docs[^"]*)"', text)}
    assert {"/docs", "/docs/errors#{{ code }}", "/docs/guides/signing", "/docs/guides/receive-webhooks"} <= found
    assert [*dead("/docs", [address.replace("{{ code }}", "101003") for address in found])] == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in PAGES:
        text = FILES[path].body().decode()
        assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', text), path
        assert not re.search(r"<script(?![^>]+src=)|<style|<[a-z][^>]*\s(?:style|on[a-z]+)=", text), path


def test_raw_html_is_shown_as_text() -> None:
    page = markdown.rendered("# A\n\n<script>alert(1)</script>\n\na <b>c</b> [x](javascript:alert(1))\n\n<!-- no -->\n")
    assert "<script" not in page.html and "<b>" not in page.html and "<!--" not in page.html
    assert 'href="javascript' not in page.html


def test_a_long_path_breaks_at_its_slashes() -> None:
    page = markdown.rendered(
        "# A\n\n`POST {base}/api/v1/open/<operation>` `webhook/save` `https://api.example.com/health/`\n"
    )
    assert "<code>POST {base}/<wbr>api/<wbr>v1/<wbr>open/<wbr>&lt;operation&gt;</code>" in page.html
    assert "<code>webhook/save</code> <code>https://api.example.com/<wbr>health/</code>" in page.html


def test_llms_full_lists_every_operation_code_and_event() -> None:
    text, listed = FILES["/llms-full.txt"].body().decode(), FILES["/llms.txt"].body().decode()
    for operation in OPERATIONS:
        assert f"/open-api/v1{operation.path}`" in text and f"(/docs/reference{operation.path}.md)" in listed
    for code in RESULT_CODES:
        assert f"### {code}\n" in text
    for event in EVENTS:
        assert f"## {event}\n" in text


def test_the_search_index_has_every_page_and_heading() -> None:
    rows = json.loads(FILES["/docs/search.json"].body())
    assert {row[0] for row in rows} == set(PAGES) - {"/docs", "/docs/404.html"}
    assert all(row[3] in links(row[0]).anchors for row in rows)


def test_the_static_site_has_the_same_files(tmp_path: Path) -> None:
    assert MADE["build"](MADE["document"](), tmp_path) == len(FILES)
    assert (tmp_path / "docs/guides/signing/index.html").read_bytes() == FILES["/docs/guides/signing"].body()
    assert (tmp_path / "docs/guides/signing.md").exists() and (tmp_path / "llms.txt").exists()


# The error catalogue


def catalogue() -> dict[str, str]:
    return dict(re.findall(r"^### (\d{6})\n\n(.*?)(?=\n##|\Z)", ERRORS, re.MULTILINE | re.DOTALL))


def test_the_catalogue_has_each_code_with_its_status_cause_and_cure() -> None:
    found = catalogue()
    ours = set(RESULT_CODES)
    own_of_the_face = {rt.number(code) for code in RESULT_CODES} - ours
    assert set(found) == ours | own_of_the_face
    for code, text in found.items():
        status = RESULT_CODES[code].status if code in ours else rt.status(code)
        assert text.startswith(f"HTTP {status}. "), code
        assert "\n- **Cause:** " in text and "\n- **Cure:** " in text, code


def test_the_catalogue_has_the_numbers_of_the_rt_face() -> None:
    table = re.findall(r"^\| `(\d{6})` \| ((?:`\d{6}`(?:, )?)+) \|$", ERRORS, re.MULTILINE)
    shown = {ours: theirs for theirs, list_of_ours in table for ours in re.findall(r"\d{6}", list_of_ours)}
    assert shown == dict(rt.NUMBERS)
    [others] = re.findall(r"^Other HTTP statuses than 200: (.*)\.$", ERRORS, re.MULTILINE)
    for code in RESULT_CODES:
        if rt.status(code) != 200 and code != "900002":
            assert re.search(rf"`{code}`.*? {rt.status(code)}", others), code
