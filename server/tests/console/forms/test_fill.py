"""How is a form of a page filled again, and where does it say why it was refused?"""

import pytest

from dealer_server.console.shared.forms.fill import Refused, fill

WHY = "that is <not> it"
FLASH = '<div class="flash flash-bad" role="alert">'
PAGE = """<main class="page" id="main"><details><summary>Terms</summary><form method="post" action="/a">
<div class="mb-3"><input class="form-control" id="field-name" name="name" value="" aria-describedby="field-name-help">
<small id="field-name-help">Help</small></div>
<div class="mb-3"><textarea name="note"></textarea><select name="pick"><option value="a">A</option></select></div>
<label class="form-check"><input type="checkbox" name="sure"><span>Sure</span></label><p>after</p>
<fieldset><label><input type="radio" name="one" value="1"></label>
<label><input type="radio" name="one" value="2"></label></fieldset>
<div class="drop"><input type="file" name="file"><span>Drop</span></div></form></details>
<dialog><form method="post" action="/b"><input name="name" value=""></form></dialog></main>"""


def error_of(name: str) -> str:
    return f'<div class="invalid-feedback d-block" id="field-{name}-error">that is &lt;not&gt; it</div>'


def test_the_error_stands_beneath_its_field_which_has_the_focus():
    page = fill(PAGE, "/a", {"name": "x"}, refused=Refused(WHY, {"name": WHY}))
    assert page is not None and "flash" not in page and "<details open>" in page
    assert (
        '<input id="field-name" name="name" value="x" class="form-control is-invalid" aria-invalid="true"'
        f' aria-describedby="field-name-error field-name-help" autofocus>{error_of("name")}\n<small' in page
    )


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("note", "</textarea>"),
        ("pick", "</select>"),
        ("sure", "</label>"),
        ("one", "</label></fieldset>"),
        ("file", "<span>Drop</span></div>"),
    ],
)
def test_the_error_stands_after_what_holds_its_field(name: str, before: str):
    page = fill(PAGE, "/a", {"name": "x"}, refused=Refused(WHY, {name: WHY}))
    assert page is not None and before + error_of(name) in page and page.count("invalid-feedback") == 1
    assert ("aria-invalid" in page) == (name != "one"), "no attribute of a radio button"


@pytest.mark.parametrize("fault", ["", "nothing"])
def test_without_a_field_to_blame_the_top_of_the_page_or_of_the_dialog_says_it(fault: str):
    page = fill(PAGE, "/a", {"name": "x"}, refused=Refused(WHY, {fault: WHY} if fault else {}))
    assert page is not None and page.startswith(f'<main class="page" id="main">{FLASH}') and page.count(FLASH) == 1
    assert "that is &lt;not&gt; it" in page and "aria-invalid" not in page
    page = fill(PAGE, "/b", {"name": "x"}, refused=Refused(WHY, {fault: WHY} if fault else {}))
    assert page is not None and f'<form method="post" action="/b">{FLASH}' in page and page.count(FLASH) == 1
    page = fill(PAGE, "/gone", {"name": "x"}, refused=Refused(WHY, {fault: WHY} if fault else {}))
    assert page is not None and page.startswith(f'<main class="page" id="main">{FLASH}')


TWO_FORMS = """<!doctype html><p>a &amp; b</p><form method="post" action="/x"><input type="hidden" name="row" value="1">
<input name="name" value="old"></form>
<dialog id="d"><form method="post" action="/x"><input type="hidden" name="row" value="2"><input name="name" value="old">
<input type="checkbox" name="on" value="on" checked><input type="password" name="password">
<select name="pick"><option value="a" selected>A</option><option value="b">B</option></select>
<textarea name="text">before</textarea></form></dialog>"""


def test_the_form_that_was_sent_is_filled_and_no_other():
    entered = {"row": "2", "name": 'new "<b>"', "pick": "b", "text": "<after>", "password": "never"}
    filled = fill(TWO_FORMS, "/x", entered)
    assert filled is not None
    first, second = filled.split("<dialog")
    assert first == TWO_FORMS.split("<dialog")[0]
    assert " open data-reopen>" in second and 'value="new &quot;&lt;b&gt;&quot;"' in second
    assert '<input type="checkbox" name="on" value="on">' in second
    assert '<option value="b" selected>' in second and '<option value="a">' in second
    assert ">\n&lt;after&gt;</textarea>" in second and "never" not in second and "before" not in second
    assert fill(TWO_FORMS, "/y", entered) is None and fill(TWO_FORMS, "/x", {"row": "3", "name": "x"}) is None
