"""Is a page of the console declared in full? What is missing is reported at the start."""

import pytest

from dealer_server.console import routing
from dealer_server.console.shared.page import MenuEntry, Page, action, download, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext

TEMPLATE = "operator/regions.html"


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
