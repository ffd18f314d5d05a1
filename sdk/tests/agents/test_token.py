"""The token of `esim-dealer mcp --http`: one that clients can send as a bearer token, or none."""

import pytest

from esim_dealer import errors
from esim_dealer.cli.mcp import sendable


@pytest.mark.parametrize("given", ["a-token", " a-token", "a-token\r\n"])
def test_spaces_around_do_not_belong_to_it(given: str):
    assert sendable(given) == "a-token"


@pytest.mark.parametrize("given", ["p@ss!word", "a.b_c~d+e/f=="])
def test_what_is_visible_ascii_stays_as_it_is(given: str):
    assert sendable(given) == given


@pytest.mark.parametrize(
    "given", ["", " ", "\n", "a token", "a\ttoken", "a\ntoken", "tökén", "\udcff", "a\x7f", "a\x00"]
)
def test_what_no_client_can_send_is_refused_and_not_repeated(given: str):
    with pytest.raises(errors.NotConfigured, match=r"ESIM_DEALER_MCP_TOKEN.* ASCII ") as refused:
        sendable(given)
    assert not given.strip() or given not in str(refused.value)
