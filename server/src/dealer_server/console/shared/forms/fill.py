"""Fills a form of a rendered page with what was entered before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import NamedTuple

from dealer_server.console.shared import rendering

_PLAIN = ("hidden", "password", "file", "submit", "button", "reset", "image")
_VOID = {"area", "br", "col", "embed", "img", "input", "link", "meta", "source", "track", "wbr"}
OPEN = "data-reopen"  # of a dialog that is shown again
ONCE = "transaction_id"  # another on every page; what is sent twice with the same one is done once
Attributes = list[tuple[str, str | None]]


class Refused(NamedTuple):
    """Why a form was refused. `faults`: what of each field that is to blame, by its name."""

    text: str
    faults: Mapping[str, str] = {}


@dataclass
class _Form:
    """A form of the page: its hidden fields, those that can be filled in, each with the <details> it stands in, and the
    dialog and the <details> that the form stands in; by their places on the page."""

    action: str
    dialog: int | None
    details: frozenset[int]
    hidden: dict[str, str] = field(default_factory=dict[str, str])
    fields: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])


def fill(
    html: str, action: str, entered: Mapping[str, str], version: str = "", refused: Refused | None = None
) -> str | None:
    """The page with what was entered in the form that goes there; what it is folded in is open. Of several such forms
    the one whose hidden fields are the same; its transaction_id is that of the form that was sent. `version`: for the
    form's field of that name, where it is to be another one. Why it was `refused` stands beneath each field to blame,
    else at the top of the form's dialog, else at the top of the page. None where there is no such form and nothing to
    be said."""
    finder = _Finder()
    finder.feed(html)
    finder.close()
    fitting = [at for at, form in enumerate(finder.forms) if form.action == action and _fits(form, entered, refused)]
    if not fitting and refused is None:
        return None
    at = fitting[0] if fitting else None
    form = _Form(action, None, frozenset()) if at is None else finder.forms[at]
    writer = _Writer(at, form, entered, version, refused)
    writer.feed(html)
    writer.close()
    return "".join(writer.out)


def _fits(form: _Form, entered: Mapping[str, str], refused: Refused | None) -> bool:
    same = all(entered[name] == value for name, value in form.hidden.items() if name in entered and name != ONCE)
    known = {*entered, *(refused.faults if refused else ())}  # a file is not among what was entered
    return same and bool(form.fields.keys() & known or not form.fields)


class _Finder(HTMLParser):
    """Collects the forms that are posted."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.forms: list[_Form] = []
        self._dialogs = self._folded = 0
        self._dialog: int | None = None
        self._details: list[int] = []
        self._form: _Form | None = None

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        named = dict(attrs)
        if tag == "dialog":
            self._dialog, self._dialogs = self._dialogs, self._dialogs + 1
        elif tag == "details":
            self._details.append(self._folded)
            self._folded += 1
        elif tag == "form" and (named.get("method") or "").lower() == "post":
            self._form = _Form(named.get("action") or "", self._dialog, frozenset(self._details))
            self.forms.append(self._form)
        elif self._form and tag in ("input", "select", "textarea") and (name := named.get("name")):
            if named.get("type") == "hidden":
                self._form.hidden[name] = named.get("value") or ""
            else:
                self._form.fields[name] = frozenset(self._details)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "dialog":
            self._dialog = None
        elif tag == "details":
            self._details.pop()


class _Writer(HTMLParser):
    """Writes the page again, with the fields of one form filled in. `at`: its place among the forms."""

    def __init__(
        self, at: int | None, form: _Form, entered: Mapping[str, str], version: str, refused: Refused | None
    ) -> None:
        super().__init__(convert_charrefs=False)
        self.out: list[str] = []
        self._at, self._form, self._entered, self._version = at, form, entered, version
        faults = refused.faults if refused else {}
        self._faults = {name: text for name, text in faults.items() if name in form.fields}
        self._unfolded = form.details.union(*(form.fields[name] for name in self._faults))
        elsewhere = [text for name, text in faults.items() if name not in form.fields]
        self._said = "; ".join(elsewhere) if self._faults else refused.text if refused else ""
        self._focused = False
        self._forms = self._dialogs = self._folded = -1
        self._inside = False
        self._chosen: str | None = None
        self._replaced = False
        self._within: list[str] = []  # elements of the form that are open; those that hold a field, or a choice: ""
        self._errors: list[tuple[int, str]] = []  # how many are open where one stands, and what it is

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        raw, named = self.get_starttag_text() or "", dict(attrs)
        if tag == "dialog":
            self._dialogs += 1
            if self._dialogs == self._form.dialog:
                raw = _tag(tag, [*attrs, ("open", ""), (OPEN, "")])
        elif tag == "details":
            self._folded += 1
            if self._folded in self._unfolded and "open" not in named:
                raw = _tag(tag, [*attrs, ("open", "")])
        elif tag == "form" and (named.get("method") or "").lower() == "post":
            self._forms += 1
            self._inside = self._forms == self._at
            raw += self._flash() if self._inside and self._form.dialog is not None else ""
        elif tag == "main":
            raw += self._flash() if self._form.dialog is None else ""
        elif self._inside:
            marked = self._blamed(tag, attrs)
            raw = self._field(tag, marked) or (_tag(tag, marked) if marked is not attrs else raw)
            if named.get("class") == "save-bar":
                raw = _tag(tag, [*attrs, ("data-unsaved", "")])
        self.out.append(raw)
        if self._inside:
            self._open(tag, named)

    def _open(self, tag: str, named: Mapping[str, str | None]) -> None:
        if tag == "textarea" and named.get("name") in self._entered:
            self.out.append("\n" + escape(self._entered[str(named["name"])]))
            self._replaced = True
        if tag not in _VOID:
            holds = tag in ("fieldset", "label", "select", "textarea") or named.get("class") in ("drop", "with-unit")
            self._within.append("" if holds else tag)
        self._say_error()

    def _flash(self) -> str:
        """At the top: why the form was refused, where no field is to blame."""
        return rendering.render("flash.html", {"flash": self._said, "failed": True}) if self._said else ""

    def _blamed(self, tag: str, attrs: Attributes) -> Attributes:
        """The same but of a field that is to blame: it has an error beneath, and the first one the focus."""
        named = dict(attrs)
        name = named.get("name") or ""
        if name not in self._faults or named.get("type") == "hidden":
            return attrs
        error_id = f"{named.get('id') or f'field-{name}'}-error"
        outermost = self._within.index("") if "" in self._within else len(self._within)
        text = rendering.render("field_error.html", {"id": error_id, "text": self._faults.pop(name)})
        self._errors.append((outermost, text))
        more = {
            "class": f"{named.get('class') or ''} is-invalid".strip(),
            **({} if named.get("type") == "radio" else {"aria-invalid": "true"}),
            "aria-describedby": f"{error_id} {named.get('aria-describedby') or ''}".strip(),
            **({} if self._focused else {"autofocus": ""}),
        }
        self._focused = True
        return [*((name, value) for name, value in attrs if name not in more), *more.items()]

    def _say_error(self) -> None:
        """Once the field has ended, and what holds it."""
        ended = [text for outermost, text in self._errors if len(self._within) <= outermost]
        self._errors = [(outermost, text) for outermost, text in self._errors if len(self._within) > outermost]
        self.out += ended

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
        if self._inside and self._within:
            self._within.pop()
            self._say_error()

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        """Of an inline icon; our pages write no field so."""
        self.out.append(self.get_starttag_text() or "")

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
