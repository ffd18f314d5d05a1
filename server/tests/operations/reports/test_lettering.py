"""Names in PDF files: every text is drawn, whatever it is made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.operations.reports.pdf.lettering import Run, runs
from dealer_server.operations.reports.pdf.page import Paper


def _latin(letter: str) -> bool:
    return ord(letter) < 0x530 or 0x5D0 <= ord(letter) < 0x5EB or (ord(letter) >= 0xFB50 and ord(letter) < 0xFEFD)


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("Cafe\u0301 Ünal", [Run("Café Ünal", "")]),
        ("Путешествия", [Run("Путешествия", "")]),
        ("北京旅行社 Ltd", [Run("北京旅行社", "STSong-Light"), Run(" Ltd", "")]),
        ("日本コネクト", [Run("日本コネクト", "HeiseiKakuGo-W5")]),
        ("서울", [Run("서울", "HYGothic-Medium")]),
        ("Sun 🌞", [Run("Sun □", "")]),
        ("שלום 24", [Run("םולש 24", "")]),
        ("سلام", [Run("\ufee1\ufefc\ufeb3", "")]),
        ("a\u0000b\nc\u202e", [Run("ab c", "")]),
        ("", []),
    ],
)
def test_letters_are_drawn_by_a_font_that_has_them(text: str, drawn: list[Run]):
    assert runs(text, _latin) == drawn


@given(st.text(max_size=60))
def test_no_name_stops_a_page(text: str):
    paper = Paper("Title", "Author", text)
    paper.text(50, text, 17, bold=True, most=300)
    paper.number(500, text)
    assert paper.finished().startswith(b"%PDF-")
