"""Fills a form of a rendered page with what was entered before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser

_PLAIN = ("hidden", "password", "file", "submit", "button", "reset", "image")
OPEN = "data-reopen"  # of a dialog that is shown again
ONCE = "transaction_id"  # another on every page; what is sent twice with the same one is done once
Attributes = list[tuple[str, str | None]]


@dataclass
class _Form:
    """A form of the page: its hidden fields, those that can be filled in, and the dialog it stands in, if it does."""

    action: str
    dialog: int | None
    hidden: dict[str, str] = field(default_factory=dict[str, str])
    fields: set[str] = field(default_factory=set[str])


def fill(html: str, action: str, entered: Mapping[str, str], version: str = "", refused: str = "") -> str | None:
    """The page with what was entered in the form that goes there; a dialog around it is open, and says why it was
    `refused`. Of several such forms the one whose hidden fields are the same; its transaction_id is that of the form
    that was sent. `version`: for the form's field of that name, where it is to be another one. None where there is no
    such form."""
    finder = _Finder()
    finder.feed(html)
    finder.close()
    fitting = [at for at, form in enumerate(finder.forms) if form.action == action and _fits(form, entered)]
    if not fitting:
        return None
    at = fitting[0]
    writer = _Writer(at, finder.forms[at].dialog, entered, version, refused)
    writer.feed(html)
    writer.close()
    return "".join(writer.out)


def _fits(form: _Form, entered: Mapping[str, str]) -> bool:
    same = all(entered[name] == value for name, value in form.hidden.items() if name in entered and name != ONCE)
    return same and bool(form.fields & set(entered) or not form.fields)


class _Finder(HTMLParser):
    """Collects the forms that are posted."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.forms: list[_Form] = []
        self._dialogs = 0
        self._dialog: int | None = None
        self._form: _Form | None = None

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        named = dict(attrs)
        if tag == "dialog":
            self._dialog, self._dialogs = self._dialogs, self._dialogs + 1
        elif tag == "form" and (named.get("method") or "").lower() == "post":
            self._form = _Form(named.get("action") or "", self._dialog)
            self.forms.append(self._form)
        elif self._form and tag in ("input", "select", "textarea") and (name := named.get("name")):
            if named.get("type") == "hidden":
                self._form.hidden[name] = named.get("value") or ""
            else:
                self._form.fields.add(name)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "dialog":
            self._dialog = None


class _Writer(HTMLParser):
    """Writes the page again, with the fields of one form filled in."""

    def __init__(self, form: int, dialog: int | None, entered: Mapping[str, str], version: str, refused: str) -> None:
        super().__init__(convert_charrefs=False)
        self.out: list[str] = []
        self._form, self._dialog, self._entered, self._version = form, dialog, entered, version
        self._refused = f'<div class="flash flash-bad" role="alert"><span>{escape(refused)}</span></div>'
        if dialog is None or not refused:
            self._refused = ""
        self._forms = self._dialogs = -1
        self._inside = False
        self._chosen: str | None = None
        self._replaced = False

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        raw = self.get_starttag_text() or ""
        if tag == "dialog":
            self._dialogs += 1
            if self._dialogs == self._dialog:
                raw = _tag(tag, [*attrs, ("open", ""), (OPEN, "")])
        elif tag == "form" and (dict(attrs).get("method") or "").lower() == "post":
            self._forms += 1
            self._inside = self._forms == self._form
            raw += self._refused if self._inside else ""
        elif self._inside:
            raw = self._field(tag, attrs) or raw
        self.out.append(raw)
        if self._inside and tag == "textarea" and dict(attrs).get("name") in self._entered:
            self.out.append("\n" + escape(self._entered[str(dict(attrs)["name"])]))
            self._replaced = True

    def _field(self, tag: str, attrs: Attributes) -> str | None:
        """The tag with what was entered; None where it stays as it is."""
        named = dict(attrs)
        name, kind = named.get("name"), (named.get("type") or "text").lower()
        if tag == "select":
            self._chosen = self._entered.get(name or "")
        elif tag == "option" and self._chosen is not None:
            rest = [(key, value) for key, value in attrs if key != "selected"]
            return _tag(tag, [*rest, ("selected", "")] if named.get("value") == self._chosen else rest)
        elif tag == "input" and name and kind in ("checkbox", "radio"):
            rest = [(key, value) for key, value in attrs if key != "checked"]
            given = self._entered.get(name) == (named.get("value") or "on")
            return _tag(tag, [*rest, ("checked", "")] if given else rest)
        elif tag == "input" and name and name in self._entered and (kind not in _PLAIN or name == ONCE):
            return _with_value(tag, attrs, self._entered[name])
        elif tag == "input" and name == "version" and kind == "hidden" and self._version:
            return _with_value(tag, attrs, self._version)
        return None

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "select":
            self._chosen = None
        elif tag == "textarea":
            self._replaced = False
        self.out.append(f"</{tag}>")

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        self.out.append((self._field(tag, attrs) if self._inside else None) or self.get_starttag_text() or "")

    def handle_data(self, data: str) -> None:
        if not self._replaced:
            self.out.append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        self.out.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.out.append(f"<!{decl}>")


def _with_value(tag: str, attrs: Attributes, value: str) -> str:
    rest = [(key, value if key == "value" else text) for key, text in attrs]
    return _tag(tag, rest if ("value", value) in rest else [*rest, ("value", value)])


def _tag(tag: str, attrs: Attributes) -> str:
    written = "".join(f' {name}="{escape(text)}"' if text else f" {name}" for name, text in attrs)
    return f"<{tag}{written}>"
