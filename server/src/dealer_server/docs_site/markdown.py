"""How does Markdown become HTML? With anchors, coloured code, and links that lead to pages of the site."""

import functools
import html
import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from dealer_server.docs_site import contents

BASE = "/docs/"
_FENCE = re.compile(r"(^ *```.*?^ *```\s*?$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_OUTSIDE = re.compile(r"[a-z]+:|#|/")
_INNER_SLASH = re.compile(r"(?<=[^/<>])/(?=[^/<])")  # of code in HTML
_LONG_LETTERS = 24
_SUMMARY_LETTERS = 155
_SENTENCES = re.compile(r"\S.{30,}[.?!](?= )")


class Heading(NamedTuple):
    level: int
    anchor: str
    text: str


class Passage(NamedTuple):
    """What stands below one heading, as plain text."""

    heading: Heading
    text: str


class Rendered(NamedTuple):
    html: str
    passages: Sequence[Passage]

    @property
    def title(self) -> str:
        return self.passages[0].heading.text

    @property
    def summary(self) -> str:
        """The beginning of the text, for search engines and lists."""
        text = next((passage.text for passage in self.passages if passage.text), self.title)
        if len(text) <= _SUMMARY_LETTERS:
            return text
        sentences = _SENTENCES.match(text[:_SUMMARY_LETTERS])
        return sentences[0] if sentences else text[:_SUMMARY_LETTERS].rpartition(" ")[0].rstrip(",;:") + " …"


def linked(source: str, text: str) -> str:
    """Links between files of the repository as links between pages, and to pictures and examples; a link to any other
    file becomes its text."""

    def page_link(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        address = _address(source, target)
        return f"{image}[{label}]({address})" if address else label

    parts = _FENCE.split(text)
    return "".join(part if number % 2 else _LINK.sub(page_link, part) for number, part in enumerate(parts))


def _address(source: str, target: str) -> str:
    """Empty where it is no page."""
    if _OUTSIDE.match(target):
        return target
    name, mark, anchor = target.partition("#")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
    if file.startswith(f"{contents.IMAGES}/"):
        return BASE + file.removeprefix("docs/")
    if file in contents.examples():
        return BASE + file
    path = contents.by_source().get(file)
    return f"{BASE}{path}.md{mark}{anchor}" if path else ""


def rendered(text: str) -> Rendered:
    """`text` begins with a heading."""
    parser = _parser()
    environment: EnvType = {}
    tokens = parser.parse(text, environment)
    passages = _passages(tokens)
    body = parser.renderer.render(tokens, parser.options, environment)
    return Rendered(f"<section>\n{body}</section>\n", passages)


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", renderer_cls=_Renderer).enable("table")


def _passages(tokens: Sequence[Token]) -> list[Passage]:
    """Gives headings their anchors, and takes the emptiness from headings of columns that have none."""
    anchors: dict[str, int] = {}
    found: list[tuple[Heading, list[str]]] = []
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = _heading(int(token.tag[1:]), plain(tokens[number + 1]), anchors)
            token.attrSet("id", heading.anchor)
            found.append((heading, []))
        elif token.type == "inline" and found and tokens[number - 1].type != "heading_open":
            found[-1][1].append(plain(token))
        elif token.type in ("fence", "code_block") and found:
            found[-1][1].append(" ".join(token.content.split()))
        if token.type == "th_open" and not tokens[number + 1].content:
            token.tag = tokens[number + 2].tag = "td"  # a heading of nothing confuses screen readers
        if token.attrs.pop("style", "") == "text-align:right":  # pages have no styles of their own
            token.attrSet("class", "number")
    return [Passage(heading, " ".join(texts)) for heading, texts in found]


def _heading(level: int, text: str, anchors: dict[str, int]) -> Heading:
    """With the anchor that GitHub gives it."""
    anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    times = anchors[anchor] = anchors.get(anchor, -1) + 1
    return Heading(level, f"{anchor}-{times}" if times else anchor, text)


def plain(inline: Token) -> str:
    pieces = [" " if child.type.endswith("break") else child.content for child in inline.children or ()]
    return " ".join("".join(pieces).split())


def coloured(code: str, language: str) -> str:
    """A block of code in HTML."""
    try:
        lexer = get_lexer_by_name(language or "text", stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    body = highlight(code, lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    return f'<div class="code"><pre tabindex="0"><code>{body}</code></pre></div>\n'


_Tokens = Sequence[Token]


class _Renderer(RendererHTML):
    """The parser calls a method by the type of each token."""

    def fence(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        return coloured(tokens[idx].content, tokens[idx].info.strip().partition(" ")[0])

    def code_block(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        return coloured(tokens[idx].content, "")

    def code_inline(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        """A long path breaks at its slashes before it breaks inside a word."""
        code = super().code_inline(tokens, idx, options, env)
        return _INNER_SLASH.sub("/<wbr>", code) if len(tokens[idx].content) >= _LONG_LETTERS else code

    def table_open(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        if tokens[idx + 4].content == "field":  # shown as a list, which no column cuts
            return '<div class="fields"><table>\n'
        return '<div class="wide" tabindex="0"><table>\n'

    def table_close(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def heading_open(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        """Each heading below the first begins a section: a browser lays out those that are in sight only."""
        begins = "" if tokens[idx].tag == "h1" or tokens[idx].level else "</section>\n<section>\n"
        return begins + self.renderToken(tokens, idx, options, env)

    def heading_close(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        tag, anchor, text = tokens[idx].tag, tokens[idx - 2].attrGet("id"), plain(tokens[idx - 1])
        mark = f'<a class="anchor" href="#{anchor}" aria-label="Link to {html.escape(text)}">#</a>'
        return f"{mark if tag != 'h1' else ''}</{tag}>\n"

    def paragraph_open(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        """A link that is a paragraph of its own is as high as a finger needs."""
        inside = [child.type for child in tokens[idx + 1].children or ()]
        if inside == ["link_open", "text", "link_close"]:
            tokens[idx].attrSet("class", "lone-link")
        return self.renderToken(tokens, idx, options, env)

    def link_open(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        address = str(tokens[idx].attrGet("href"))
        if address.startswith(BASE):
            name, mark, anchor = address.partition("#")
            tokens[idx].attrSet("href", f"{name.removesuffix('.md')}{mark}{anchor}")
        return self.renderToken(tokens, idx, options, env)

    def image(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].attrSet("loading", "lazy")
        return super().image(tokens, idx, options, env)

    def html_block(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        return _shown(tokens[idx].content)

    def html_inline(self, tokens: _Tokens, idx: int, options: OptionsDict, env: EnvType) -> str:
        return _shown(tokens[idx].content)


def _shown(raw: str) -> str:
    """Comments are for tests. Nothing else is taken as HTML."""
    return "" if raw.lstrip().startswith("<!--") else html.escape(raw)
