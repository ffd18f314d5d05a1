"""What does a form of a rendered page call its fields and their choices?"""

from collections.abc import Iterable
from html.parser import HTMLParser

from dealer_server.operations.versions import Field


def labelled(html: str, action: str, fields: Iterable[Field]) -> list[Field]:
    """The fields and their values as the form that goes there calls them; what it does not have stays as it is."""
    reader = _Reader(action)
    reader.feed(html)
    reader.close()
    found = []
    for field in fields:
        choices = reader.choices.get(field.name, {})
        now, yours = choices.get(field.now, field.now), choices.get(field.yours, field.yours)
        found.append(Field(reader.label(field.name), now, yours))
    return found


class _Reader(HTMLParser):
    """Of the forms that go to `action`. `choices`: the words of a select by value, by the field's name."""

    def __init__(self, action: str) -> None:
        super().__init__(convert_charrefs=True)
        self.choices: dict[str, dict[str, str]] = {}
        self._action = action
        self._inside = False
        self._ids: dict[str, str] = {}  # by the field's name
        self._hidden_labels: dict[str, str] = {}
        self._labels: dict[str, str] = {}  # by the field's id
        self._label: str | None = None  # the id that a label is for, while the label is open
        self._select = self._value = ""
        self._texts: list[str] = []

    def label(self, name: str) -> str:
        return self._labels.get(self._ids.get(name, "")) or self._hidden_labels.get(name) or name

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {key: text or "" for key, text in attrs}
        if tag == "form":
            self._inside = named.get("action") == self._action
        elif self._inside and tag == "label":
            self._label, self._texts = named.get("for", ""), []
        elif self._inside and tag == "option":
            self._value, self._texts = named.get("value", ""), []
        elif self._inside and tag in ("input", "select", "textarea") and named.get("type") != "hidden":
            self._select = named.get("name", "")
            self._ids.setdefault(self._select, named.get("id", ""))
            self._hidden_labels.setdefault(self._select, named.get("aria-label", ""))
            self._label = self._label or (None if self._label is None else named.get("id", ""))

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        text = " ".join("".join(self._texts).split())
        if tag == "form":
            self._inside = False
        elif tag == "label" and self._label:
            self._labels.setdefault(self._label, text)
        elif tag == "option" and self._inside:
            self.choices.setdefault(self._select, {}).setdefault(self._value, text)
        if tag == "label":
            self._label = None
