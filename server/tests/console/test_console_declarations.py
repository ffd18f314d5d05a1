"""Is a page of the console declared in full, and has each act of the audit log its words? What is missing is reported
at the start."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import dealer_server
from dealer_server.console import routing
from dealer_server.console.operator.audit_words import ACTIONS
from dealer_server.console.shared.page import MenuEntry, Page, action, download, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.store.webhooks.resend import Kind

TEMPLATE = "operator/regions.html"
HIT = "failpoints.hit"
DOTTED = re.compile(r"[a-z_]+(\.(?!csv$)[a-z_]+)+").fullmatch


async def view(_: RequestContext) -> Html:
    return Html()


def test_declared_pages_are_complete_and_the_most_literal_stands_first():
    pages = routing.declared_pages()
    paths = [page.path for page in pages]
    assert paths.index("/console/dealers/new") < paths.index("/console/dealers/{tenant_id}")
    assert {page.kinds for page in pages} == {frozenset({"op"}), frozenset({"dealer"}), frozenset({"op", "dealer"})}


@pytest.mark.parametrize(
    ("declared", "fault"),
    [
        (page("/console/x", OPERATORS, "operator/none.html")(view), "there is no template operator/none.html"),
        (page("/console/x", (), TEMPLATE)(view), "the roles are ()"),
        (download("/console/x", ("op:king",))(view), "the roles are ('op:king',)"),
        (page("/console/x", OPERATORS, TEMPLATE, MenuEntry("X", "none", 1))(view), "there is no icon none"),
    ],
)
def test_what_is_missing_in_a_declaration_is_named(declared: Page, fault: str):
    with pytest.raises(ValueError, match="/console/x") as raised:
        routing.check([declared])
    assert fault in str(raised.value)


def test_a_path_is_declared_once_per_method_and_kind_of_user():
    twice = [action("/console/x", OPERATORS)(view), action("/console/x", OPERATORS, TEMPLATE)(view)]
    with pytest.raises(ValueError, match="declared 2 times for POST"):
        routing.check(twice)
    routing.check([page("/console/x", OPERATORS, TEMPLATE)(view), twice[0]])


def _recorded() -> Iterator[str]:
    """The actions of all acts that the code records: the dotted words of the files that record some, but for the names
    of failpoints."""
    for file in Path(dealer_server.__file__).parent.rglob("*.py"):
        text = file.read_text()
        if any(name in text for name in ("record_act", "record_change", "record_export")):
            tree = ast.parse(text)
            hits = [call for call in ast.walk(tree) if isinstance(call, ast.Call) and ast.unparse(call.func) == HIT]
            failpoints = {id(argument) for call in hits for argument in call.args}
            for one in ast.walk(tree):
                if isinstance(one, ast.Constant) and id(one) not in failpoints and DOTTED(str(one.value)):
                    yield str(one.value)
    yield from (f"webhook.{kind.lower()}" for kind in get_args(Kind))


def test_each_act_of_the_audit_log_has_its_words():
    assert set(_recorded()) == ACTIONS.keys()
