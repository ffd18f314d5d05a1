"""What is looked for with a text, and how do orders come to stand on pages of texts?"""

from dealer_server.console.shared import words
from dealer_server.console.shared.forms import tokens
from dealer_server.operations.search.collect import PAGE_BYTES, pages_of
from dealer_server.rules.search import query
from dealer_server.store.search.pages import Text


def test_words_are_looked_for_from_three_characters_on():
    assert query.read("  Fair  LYON ").words == ("fair", "lyon")
    assert query.read("ab").words == () and query.read("lyon 12").words == ()
    assert query.read("\0 ").words == () and query.read("x" * 500).text == "x" * 200


def test_digits_may_be_the_end_of_an_iccid():
    assert query.read("12 34").digits == "1234"
    assert query.read("123").digits is None and query.read("١٢٣٤").digits is None and query.read("12a4").digits is None


def test_orders_fill_the_newest_page_and_then_new_ones():
    texts = [Text(1, number, f"T-{number:04}", "Ligne\nde\tLyon") for number in range(1, 400)]
    made = pages_of(texts, (0, PAGE_BYTES - 100))
    assert made[0].first_order_id == 0 and made[1].first_order_id == made[0].order_ids[0] + 1
    assert [number for page in made for number in reversed(page.order_ids)] == list(range(1, 400))
    for page in made:
        lines = page.lines.split("\n")
        assert len(lines) == len(page.order_ids) == len(page.tenant_ids)
        assert lines[0] == f"t-{page.order_ids[0]:04}\tligne de lyon"
        assert len(page.lines) + 16 * len(lines) <= PAGE_BYTES
    assert pages_of([], None) == []


def test_a_mask_hides_a_token_otherwise_each_time():
    token = "0f" * 32
    masked = {tokens.masked(token) for _ in range(8)}
    assert len(masked) == 8 and {tokens.unmasked(one) for one in masked} == {token}
    assert tokens.unmasked("") == tokens.unmasked("zz" * 64) == tokens.unmasked(token) == ""


def test_a_state_is_said_in_plain_words_and_coloured_where_attention_is_due():
    assert [words.text(word) for word in ("DELIVERED", "OFF_SALE", "IN_FLIGHT", "HTTP 500", "–")] == [
        *("Delivered", "Off sale", "Being sent", "HTTP 500", "–")
    ]
    assert words.text("RT_SMDP_EVENT") == "RT: SM-DP+ status"
    assert [words.tone(word) for word in ("COMPLETED", "REFUNDED", "FAILED", "PARKED", "PENDING")] == [
        *("good", "done", "bad", "warning", "busy")
    ]
